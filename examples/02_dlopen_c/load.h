/* bitexact through dlopen. The header gives types and constants; no prototype can be called by mistake. */
#ifndef EXAMPLE_LOAD_H_
#define EXAMPLE_LOAD_H_

#define BITEXACT_NO_PROTOTYPES
#include <bitexact.h>

/* The library's functions, or null after printing why; then the program goes on without. */
const bitexact_api* load_bitexact(const char* path);

#endif
