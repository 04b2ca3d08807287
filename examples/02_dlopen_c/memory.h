/* Memory of CUDA device 0, through the driver library alone and only if this machine has one; else of the
 * host. No CUDA header or library is needed to build it. */
#ifndef EXAMPLE_MEMORY_H_
#define EXAMPLE_MEMORY_H_

#include <stddef.h>

int memory_use_cuda(void); /* 1 if device 0 is there; until then, and if not, memory is the host's */
void* memory_allocate(size_t bytes);
void memory_upload(void* to, const void* from, size_t bytes);
void memory_download(void* to, const void* from, size_t bytes);
void memory_free(void* memory);

#endif
