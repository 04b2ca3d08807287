/* Structs that the library writes: up to the caller's struct_size and not one byte further. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "bitexact.h"
#include "check.h"
#include "edge.h"

enum { EXTRA = 64 };

static bitexact_context* context = NULL;

static int32_t get_info(void* to) { return bitexact_context_get_info(context, (bitexact_context_info*)to); }
static int32_t get_report(void* to) { return bitexact_gate_get(context, 0, (bitexact_gate_report*)to); }

/* A struct of 0xaa bytes but for its size, as a caller might leave it. */
static unsigned char* dirty(size_t size) {
  unsigned char* to = (unsigned char*)edge_of_memory(size);
  memset(to, 0xaa, size);
  set_struct_size(to, size);
  return to;
}

static void test_shorter(int32_t (*get)(void*), const unsigned char* whole, size_t whole_size) {
  size_t size;
  for (size = 8; size <= whole_size; size += 8) {
    unsigned char* to = dirty(size);
    CHECK_EQUAL(get(to), BITEXACT_STATUS_OK);
    CHECK(memcmp(to + 4, whole + 4, size - 4) == 0);
  }
}

/* A newer caller's struct: what this library does not know reads as zero. */
static void test_longer(int32_t (*get)(void*), const unsigned char* whole, size_t whole_size) {
  static const unsigned char zeros[EXTRA];
  unsigned char* to = dirty(whole_size + EXTRA);
  uint32_t size;
  CHECK_EQUAL(get(to), BITEXACT_STATUS_OK);
  memcpy(&size, to, sizeof(size));
  CHECK_EQUAL(size, whole_size + EXTRA);
  CHECK(memcmp(to + 4, whole + 4, whole_size - 4) == 0);
  CHECK(memcmp(to + whole_size, zeros, EXTRA) == 0);
}

static void test_refused(int32_t (*get)(void*), size_t whole_size) {
  size_t size;
  CHECK_EQUAL(get(NULL), BITEXACT_STATUS_NULL_POINTER);
  for (size = 0; size < 8; ++size) {
    unsigned char* to = dirty(whole_size);
    size_t i;
    set_struct_size(to, size);
    CHECK_EQUAL(get(to), BITEXACT_STATUS_STRUCT_SIZE);
    for (i = 4; i < whole_size; ++i) CHECK_EQUAL(to[i], 0xaa);
  }
}

static void test(int32_t (*get)(void*), const void* whole, size_t whole_size) {
  test_shorter(get, (const unsigned char*)whole, whole_size);
  test_longer(get, (const unsigned char*)whole, whole_size);
  test_refused(get, whole_size);
}

static void test_content(const bitexact_context_info* info, const bitexact_gate_report* report) {
  CHECK_EQUAL(info->struct_size, sizeof(*info));
  CHECK_EQUAL(info->device, BITEXACT_DEVICE_HOST);
  CHECK_EQUAL(info->gate_policy, BITEXACT_POLICY_STRICT);
  CHECK_EQUAL(info->reference_mode, BITEXACT_REFERENCE_CALLER);
  CHECK(info->device_name != NULL);
  CHECK_EQUAL(report->struct_size, sizeof(*report));
  CHECK(report->kernel_name != NULL);
}

static void test_index(void) {
  bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
  int64_t count = -1;
  CHECK_EQUAL(bitexact_gate_count(context, NULL), BITEXACT_STATUS_NULL_POINTER);
  CHECK_EQUAL(bitexact_gate_count(context, &count), BITEXACT_STATUS_OK);
  CHECK(count > 0);
  CHECK_EQUAL(bitexact_gate_get(context, -1, &report), BITEXACT_STATUS_INDEX);
  CHECK_EQUAL(bitexact_gate_get(context, count, &report), BITEXACT_STATUS_INDEX);
  CHECK_EQUAL(bitexact_gate_get(context, count - 1, &report), BITEXACT_STATUS_OK);
}

int main(void) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
  options.device = BITEXACT_DEVICE_HOST;
  options.gate_policy = BITEXACT_POLICY_STRICT;
  options.reference_mode = BITEXACT_REFERENCE_CALLER;
  CHECK_EQUAL(bitexact_context_create(&options, &context), BITEXACT_STATUS_OK);
  if (context == NULL) return EXIT_FAILURE;
  CHECK_EQUAL(get_info(&info), BITEXACT_STATUS_OK);
  CHECK_EQUAL(get_report(&report), BITEXACT_STATUS_OK);
  test_content(&info, &report);
  test(get_info, &info, sizeof(info));
  test(get_report, &report, sizeof(report));
  test_index();
  bitexact_context_destroy(context);
  return CHECK_RESULT();
}
