#include "eager.h"

#include <string.h>

static float widened(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

/* To the nearest bfloat16, ties to even. The inputs of this example hold no NaN. */
static uint16_t narrowed(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float rounded(float value) { return widened(narrowed(value)); }

/* Products of two bfloat16 are exact in float, so that no compiler can change a bit by contraction. */
static uint16_t sum(float product1, float product2, int round_each) {
  return round_each ? narrowed(rounded(product1) + rounded(product2)) : narrowed(product1 + product2);
}

void eager_rope(const uint16_t* x, const uint16_t* cos, const uint16_t* sin, uint16_t* out, int tokens,
                int heads, int dim, int round_each) {
  const int half = dim / 2;
  int t, h, j;
  for (t = 0; t < tokens; ++t) {
    for (h = 0; h < heads; ++h) {
      const uint16_t* in = x + (t * heads + h) * dim;
      uint16_t* to = out + (t * heads + h) * dim;
      for (j = 0; j < half; ++j) {
        const float x1 = widened(in[j]), x2 = widened(in[j + half]);
        const float c = widened(cos[t * half + j]), s = widened(sin[t * half + j]);
        to[j] = sum(x1 * c, -x2 * s, round_each);
        to[j + half] = sum(x2 * c, x1 * s, round_each);
      }
    }
  }
}
