/* Uses every type, initialiser, constant and function that the header declares. check_header.py compiles
 * it as each version of C and C++: a header with, say, a missing typedef warns nobody until it is used. */
#include "bitexact.h"
#include "every_name.h"

static int64_t used = 0;
#define USE(value) used += (int64_t)(value)

static void on_log(int32_t level, const char* text, void* user) {
  USE(level);
  USE(text != NULL);
  USE(user != NULL);
}

static void use_structs(void) {
#define USE_STRUCT(type, NAME)                      \
  {                                                 \
    const type object = BITEXACT_##NAME##_INIT;     \
    type copy;                                      \
    copy = object;                                  \
    USE(copy.struct_size == sizeof(object));        \
    USE(copy.flags);                                \
    USE(BITEXACT_##NAME##_SIZE_V1 <= sizeof(type)); \
  }
  EVERY_STRUCT(USE_STRUCT)
}

static void use_constants(void) {
#define USE_CONSTANT(name) USE(name);
  EVERY_CONSTANT(USE_CONSTANT)
#if BITEXACT_VERSION != BITEXACT_VERSION_MAJOR * 10000 + BITEXACT_VERSION_MINOR * 100 + BITEXACT_VERSION_PATCH
#error "BITEXACT_VERSION must be usable in the preprocessor"
#endif
}

/* The function types, without prototypes: what a program that dlopens the library has. */
static void use_function_types(const bitexact_api* api) {
#define USE_FUNCTION_TYPE(name) \
  {                             \
    name##_fn function = NULL;  \
    USE(function != NULL);      \
  }
  EVERY_FUNCTION(USE_FUNCTION_TYPE)
#define USE_TABLE_MEMBER(member)                      \
  {                                                   \
    bitexact_##member##_fn function = (api)->member;  \
    USE(sizeof(function) == sizeof(bitexact_log_fn)); \
  }
  EVERY_TABLE_MEMBER(USE_TABLE_MEMBER)
}

#ifndef BITEXACT_NO_PROTOTYPES
/* Each prototype and its function type must be the same. */
static void use_prototypes(void) {
#define USE_PROTOTYPE(name)             \
  {                                     \
    name##_fn const function = name;    \
    name##_fn volatile kept = function; \
    USE(kept != NULL);                  \
  }
  EVERY_FUNCTION(USE_PROTOTYPE)
}
#endif

int main(void) {
  bitexact_api api;
  bitexact_stream stream = NULL;
  bitexact_context* context = NULL;
  bitexact_log_fn log = on_log;
  log(BITEXACT_LOG_INFO, "", context);
  USE(stream != NULL);
  api.struct_size = 0;
#define CLEAR(member) api.member = NULL;
  EVERY_TABLE_MEMBER(CLEAR)
  use_structs();
  use_constants();
  use_function_types(&api);
#ifndef BITEXACT_NO_PROTOTYPES
  use_prototypes();
#endif
  return used < 0;
}
