#include "load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/*! [load] */
const bitexact_api* load_bitexact(const char* path) {
  bitexact_version_fn version = NULL;
  bitexact_get_api_fn get_api = NULL;
  const bitexact_api* api = NULL;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *version_symbol, *get_api_symbol;
  if (library == NULL) {
    printf("carrying on without bitexact: %s\n", dlerror());
    return NULL;
  }
  version_symbol = dlsym(library, "bitexact_version");
  get_api_symbol = dlsym(library, "bitexact_get_api");
  if (version_symbol == NULL || get_api_symbol == NULL) {
    printf("carrying on without bitexact: %s is another library\n", path);
    return NULL;
  }
  /* ISO C has no cast from an object pointer to a function pointer. */
  memcpy(&version, &version_symbol, sizeof(version));
  memcpy(&get_api, &get_api_symbol, sizeof(get_api));
  if (get_api(BITEXACT_API_VERSION, &api) != BITEXACT_STATUS_OK) {
    printf("carrying on without bitexact: version %u is too old\n", (unsigned)version());
    return NULL;
  }
  return api;
}
/*! [load] */
