/* The version, the function table, and the texts of statuses, as a C caller sees them. */
#include <string.h>

#include "bitexact.h"
#include "check.h"
#include "every_name.h"

static void test_version(void) {
  CHECK_EQUAL(bitexact_version(), BITEXACT_VERSION);
  CHECK(strstr(bitexact_build_info(), "bitexact ") != NULL);
}

static void test_versions_of_the_table(void) {
  const bitexact_api* oldest = NULL;
  const bitexact_api* again = NULL;
  uint32_t version;
  CHECK_EQUAL(bitexact_get_api(1, &oldest), BITEXACT_STATUS_OK);
  for (version = 1; version <= BITEXACT_API_VERSION; ++version) {
    const bitexact_api* api = NULL;
    CHECK_EQUAL(bitexact_get_api(version, &api), BITEXACT_STATUS_OK);
    CHECK(api != NULL);
    CHECK_EQUAL(api->api_version, version);
  }
  CHECK_EQUAL(bitexact_get_api(1, &again), BITEXACT_STATUS_OK);
  CHECK(again == oldest);
}

static void test_refused_version(uint32_t version, const char* asked, const char* known) {
  static const bitexact_api not_null;
  const bitexact_api* api = &not_null;
  CHECK_EQUAL(bitexact_get_api(version, &api), BITEXACT_STATUS_API_VERSION);
  CHECK(api == NULL);
  CHECK(strstr(bitexact_last_error(), "bitexact_get_api") != NULL);
  CHECK(strstr(bitexact_last_error(), asked) != NULL);
  CHECK(strstr(bitexact_last_error(), known) != NULL);
}

static void test_refused_versions(void) {
  char newer[32], known[32];
  snprintf(newer, sizeof(newer), "is %d;", BITEXACT_API_VERSION + 1);
  snprintf(known, sizeof(known), "1 to %d", BITEXACT_API_VERSION);
  test_refused_version(0, "is 0;", known);
  test_refused_version(BITEXACT_API_VERSION + 1, newer, known);
  test_refused_version(UINT32_MAX, "is 4294967295;", known);
  CHECK_EQUAL(bitexact_get_api(1, NULL), BITEXACT_STATUS_NULL_POINTER);
}

static void test_members(void) {
  const bitexact_api* api = NULL;
  CHECK_EQUAL(bitexact_get_api(BITEXACT_API_VERSION, &api), BITEXACT_STATUS_OK);
  CHECK_EQUAL(api->struct_size, sizeof(bitexact_api));
#define CHECK_MEMBER(member)  \
  CHECK(api->member != NULL); \
  CHECK(api->member == bitexact_##member);
  EVERY_TABLE_MEMBER(CHECK_MEMBER)
}

static void test_status_texts(void) {
  static const int32_t unknown[] = {-1, 18, 99, 109, 199, 203, 1000, INT32_MAX, INT32_MIN};
  size_t i;
#define CHECK_STATUS(status, name)               \
  CHECK(bitexact_status_string(status) != NULL); \
  CHECK(strncmp(bitexact_status_string(status), name, strlen(name)) == 0);
  EVERY_STATUS(CHECK_STATUS)
  for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); ++i) {
    CHECK(bitexact_status_string(unknown[i]) != NULL);
    CHECK(strstr(bitexact_status_string(unknown[i]), "unknown") != NULL);
  }
}

static void test_initialisers(void) {
#define CHECK_INITIALISERS(type, NAME)                         \
  {                                                            \
    const type by_macro = BITEXACT_##NAME##_INIT;              \
    type by_function;                                          \
    memset(&by_function, 0xff, sizeof(by_function));           \
    type##_init(&by_function);                                 \
    CHECK(memcmp(&by_macro, &by_function, sizeof(type)) == 0); \
    CHECK_EQUAL(by_function.struct_size, sizeof(type));        \
    type##_init(NULL);                                         \
  }
  EVERY_STRUCT(CHECK_INITIALISERS)
}

int main(void) {
  CHECK(bitexact_last_error() != NULL); /* also before any error */
  CHECK_EQUAL(bitexact_last_cuda_error(), 0);
  test_version();
  test_versions_of_the_table();
  test_refused_versions();
  test_members();
  test_status_texts();
  test_initialisers();
  bitexact_context_destroy(NULL);
  return CHECK_RESULT();
}
