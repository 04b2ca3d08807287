/* Loads the library as a plugin host does: without linking it, on a machine that may have no GPU, beside a
 * library that exports all of its internal names. Usage: test_dlopen IMPOSTOR LIBRARY */
#define _DEFAULT_SOURCE
#include <dlfcn.h>
#include <string.h>

#define BITEXACT_NO_PROTOTYPES
#include "bitexact.h"

static const bitexact_api* api = NULL;
#define bitexact_last_error() (api != NULL ? api->last_error() : "")
#include "check.h"

/* Is a library with this in its name mapped into the process? */
static int is_loaded(const char* part) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) abort();
  while (fgets(line, sizeof(line), maps) != NULL) found = found || strstr(line, part) != NULL;
  fclose(maps);
  return found;
}

static void check_no_cuda(void) {
  CHECK(!is_loaded("libcuda"));
  CHECK(!is_loaded("libcudart"));
  CHECK(!is_loaded("libnvidia"));
  CHECK(!is_loaded("/dev/nvidia"));
}

/* ISO C knows no cast from an object pointer to a function pointer; POSIX promises that the bytes agree. */
static void find(void* library, const char* name, void* function) {
  void* address = dlsym(library, name);
  CHECK(address != NULL);
  memcpy(function, &address, sizeof(address));
}

static void use_host_context(void) {
  const uint16_t gate[3] = {0x3f80, 0xbf80, 0x4000}, up[3] = {0x4000, 0x4000, 0x3f80};
  uint16_t out[3] = {0, 0, 0};
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_silu_mul_params params = BITEXACT_SILU_MUL_PARAMS_INIT;
  bitexact_context* context = NULL;
  int64_t count = 0;
  options.device = BITEXACT_DEVICE_HOST;
  CHECK_EQUAL(api->context_create(&options, &context), BITEXACT_STATUS_OK);
  params.dtype = BITEXACT_DTYPE_BFLOAT16;
  params.batches = params.rows = 1;
  params.cols = 3;
  params.gate = gate;
  params.up = up;
  params.out = out;
  CHECK_EQUAL(api->fused_silu_mul(context, &params, NULL), BITEXACT_STATUS_OK);
  CHECK_EQUAL(out[0], 0x3fbb); /* silu(1) = 0.7310586, times 2 */
  CHECK_EQUAL(api->gate_count(context, &count), BITEXACT_STATUS_OK);
  CHECK(count > 0);
  api->context_destroy(context);
}

static void test_nodelete(void* library) {
  CHECK_EQUAL(dlclose(library), 0);
  CHECK(is_loaded("libbitexact"));
  CHECK_EQUAL(api->version(), BITEXACT_VERSION);
}

int main(int argc, char** argv) {
  void *impostor, *library;
  int* impostor_calls;
  bitexact_version_fn version = NULL;
  bitexact_get_api_fn get_api = NULL;
  if (argc != 3) return EXIT_FAILURE;
  impostor = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (impostor == NULL || library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return EXIT_FAILURE;
  }
  impostor_calls = (int*)dlsym(impostor, "impostor_calls");
  find(library, "bitexact_version", &version);
  find(library, "bitexact_get_api", &get_api);
  CHECK_EQUAL(version(), BITEXACT_VERSION);
  CHECK_EQUAL(get_api(BITEXACT_API_VERSION, &api), BITEXACT_STATUS_OK);
  check_no_cuda();
  use_host_context();
  check_no_cuda();
  CHECK_EQUAL(*impostor_calls, 0);
  test_nodelete(library);
  CHECK(is_loaded("/libc.so")); /* is_loaded can see */
  return CHECK_RESULT();
}
