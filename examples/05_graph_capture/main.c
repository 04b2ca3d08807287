/* Captures both operations in a CUDA graph and replays it over changing inputs. Each replay is compared, bit
 * for bit, with the library's reference kernels on the same inputs. Needs a GPU. */
#include <bitexact.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 128, HEADS = 4, DIM = 64, COUNT = TOKENS * HEADS * DIM, REPLAYS = 3 };
#define BYTES (COUNT * sizeof(uint16_t))

/* Fixed device buffers: a graph keeps the addresses that it was captured with. */
typedef struct {
  uint16_t *x, *up, *tables, *rotated, *gated;
} buffers;

static void must(int succeeded, const char* what) {
  if (succeeded) return;
  fprintf(stderr, "%s: %s\n", what, bitexact_last_error());
  exit(EXIT_FAILURE);
}

static uint16_t* device_buffer(void) {
  void* memory = NULL;
  must(cudaMalloc(&memory, BYTES) == cudaSuccess, "cudaMalloc");
  return (uint16_t*)memory;
}

/* bfloat16 bits of magnitude 0.5 to 2, of both signs. */
static void fill(uint16_t* to, unsigned int seed) {
  static uint16_t host[COUNT];
  int i;
  for (i = 0; i < COUNT; ++i) {
    seed = seed * 1664525u + 1013904223u;
    host[i] = (uint16_t)((seed >> 31 << 15) | (0x3f00u + (seed >> 16 & 0xffu)));
  }
  must(cudaMemcpy(to, host, BYTES, cudaMemcpyHostToDevice) == cudaSuccess, "upload");
}

static bitexact_rope_params rope_params(const buffers* b) {
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = 1;
  p.tokens = p.table_rows = TOKENS;
  p.q_heads = HEADS;
  p.head_dim = p.rotary_dim = p.table_width = DIM;
  p.q_in = b->x;
  p.q_out = b->rotated;
  p.q_in_token_stride = p.q_out_token_stride = HEADS * DIM;
  p.q_in_head_stride = p.q_out_head_stride = DIM;
  p.cos = b->tables;
  p.sin = b->tables + TOKENS * DIM;
  p.cos_token_stride = p.sin_token_stride = DIM;
  p.cos_element_stride = p.sin_element_stride = 1;
  return p;
}

static bitexact_silu_mul_params silu_mul_params(const buffers* b) {
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = 1;
  p.rows = TOKENS;
  p.cols = HEADS * DIM;
  p.gate = b->rotated;
  p.up = b->up;
  p.out = b->gated;
  p.gate_row_stride = p.up_row_stride = p.out_row_stride = HEADS * DIM;
  return p;
}

static bitexact_context* new_context(int32_t policy) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_context* context = NULL;
  options.gate_policy = policy;
  must(bitexact_context_create(&options, &context) == BITEXACT_STATUS_OK, "context");
  return context;
}

static void enqueue(bitexact_context* context, const buffers* b, cudaStream_t stream) {
  const bitexact_rope_params rope = rope_params(b);
  const bitexact_silu_mul_params silu_mul = silu_mul_params(b);
  must(bitexact_fused_rope(context, &rope, stream) == BITEXACT_STATUS_OK, "rope");
  must(bitexact_fused_silu_mul(context, &silu_mul, stream) == BITEXACT_STATUS_OK, "silu_mul");
}

/*! [capture] */
/* The check at first use never runs during a capture, so it is done ahead. */
static cudaGraphExec_t capture(bitexact_context* context, const buffers* b, cudaStream_t stream) {
  const bitexact_rope_params rope = rope_params(b);
  const bitexact_silu_mul_params silu_mul = silu_mul_params(b);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  size_t nodes = 0;
  must(bitexact_gate_warm_up(context, &rope, &silu_mul, stream) == BITEXACT_STATUS_OK, "warm-up");
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "begin capture");
  enqueue(context, b, stream);
  must(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "end capture");
  must(cudaGraphGetNodes(graph, NULL, &nodes) == cudaSuccess && nodes == 2, "one node for each call");
  must(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess, "instantiate");
  cudaGraphDestroy(graph);
  return executable;
}
/*! [capture] */

int main(void) {
  static uint16_t actual[COUNT], expected[COUNT];
  buffers b;
  bitexact_context *context, *reference;
  cudaStream_t stream;
  cudaGraphExec_t graph;
  unsigned int replay, different = 0;
  must(cudaStreamCreate(&stream) == cudaSuccess, "stream");
  context = new_context(BITEXACT_POLICY_VERIFY);
  reference = new_context(BITEXACT_POLICY_REFERENCE);
  b.x = device_buffer();
  b.up = device_buffer();
  b.tables = device_buffer();
  b.rotated = device_buffer();
  b.gated = device_buffer();
  fill(b.tables, 1);
  graph = capture(context, &b, stream);
  for (replay = 0; replay < REPLAYS; ++replay) {
    fill(b.x, 2 * replay + 2);
    fill(b.up, 2 * replay + 3);
    enqueue(reference, &b, stream);
    cudaMemcpyAsync(expected, b.gated, BYTES, cudaMemcpyDeviceToHost, stream);
    cudaMemsetAsync(b.gated, 0xff, BYTES, stream);
    cudaGraphLaunch(graph, stream);
    cudaMemcpyAsync(actual, b.gated, BYTES, cudaMemcpyDeviceToHost, stream);
    must(cudaStreamSynchronize(stream) == cudaSuccess, "replay");
    different += memcmp(actual, expected, BYTES) != 0;
    printf("replay %u: first values %04x %04x %04x\n", replay + 1, (unsigned)actual[0], (unsigned)actual[1],
           (unsigned)actual[2]);
  }
  printf("%u of %d replays differ from the reference\n", different, REPLAYS);
  cudaGraphExecDestroy(graph);
  bitexact_context_destroy(context);
  bitexact_context_destroy(reference);
  cudaFree(b.x), cudaFree(b.up), cudaFree(b.tables), cudaFree(b.rotated), cudaFree(b.gated);
  cudaStreamDestroy(stream);
  return different != 0;
}
