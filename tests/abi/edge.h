/* Structs at the very end of mapped memory: reading or writing one byte beyond struct_size ends the test. */
#ifndef BITEXACT_TESTS_ABI_EDGE_H_
#define BITEXACT_TESTS_ABI_EDGE_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The last `size` bytes before a page that may not be touched; `size` is a multiple of 8 below a page. */
static void* edge_of_memory(size_t size) {
  static unsigned char* end = NULL;
  if (end == NULL) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char* pages =
        (unsigned char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) abort();
    end = pages + page;
  }
  return end - size;
}

static void set_struct_size(void* structure, size_t size) {
  const uint32_t size32 = (uint32_t)size;
  memcpy(structure, &size32, sizeof(size32));
}

#endif
