// Random valid calls that reach every corner of the layout rules.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "arena.h"
#include "variants.h"

namespace bitexact_test {

struct SiluMulCase {
  Arena arena;
  bitexact_silu_mul_params params;  // pointers into the arena
};

enum class InPlace { no, gate, up };

struct SiluMulShape {
  int32_t dtype, silu, compute_dtype;
  int64_t batches, rows, cols;
  int64_t gap;   // elements between rows
  int64_t skew;  // elements that pointers stand beyond an aligned address
  bool packed;   // gate and up in one buffer
  InPlace in_place;
  int32_t clamp = BITEXACT_CLAMP_NONE;
  float limit = 0.0f;
};

inline SiluMulCase make_case(const SiluMulShape& s, uint64_t seed) {
  SiluMulCase c{Arena(seed), BITEXACT_SILU_MUL_PARAMS_INIT};
  bitexact_silu_mul_params& p = c.params;
  p.dtype = s.dtype;
  p.silu = s.silu;
  p.compute_dtype = s.compute_dtype;
  p.clamp = s.clamp;
  std::memcpy(&p.limit_bits, &s.limit, sizeof(s.limit));
  p.batches = s.batches;
  p.rows = s.rows;
  p.cols = s.cols;
  const int64_t row = s.cols + s.gap, in_row = s.packed ? 2 * s.cols + s.gap : row;
  const int64_t gate = c.arena.reserve(s.batches * s.rows * in_row, s.dtype, s.skew);
  const int64_t up = s.packed ? gate + s.cols * size_of_dtype(s.dtype)
                              : c.arena.reserve(s.batches * s.rows * in_row, s.dtype, s.skew);
  const int64_t out = s.in_place == InPlace::gate ? gate
                      : s.in_place == InPlace::up
                          ? up
                          : c.arena.reserve(s.batches * s.rows * row, s.dtype, s.skew);
  const int64_t out_row = s.in_place == InPlace::no ? row : in_row;
  for (int64_t b = 0; b < s.batches; ++b) {
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t i = 0; i < s.cols; ++i) {
        c.arena.put_value(gate, (b * s.rows + r) * in_row + i, s.dtype);
        c.arena.put_value(up, (b * s.rows + r) * in_row + i, s.dtype);
      }
    }
  }
  p.gate = c.arena.at<void>(gate);
  p.up = c.arena.at<void>(up);
  p.out = c.arena.at<void>(out);
  p.gate_row_stride = p.up_row_stride = in_row;
  p.gate_batch_stride = p.up_batch_stride = s.rows * in_row;
  p.out_row_stride = out_row;
  p.out_batch_stride = s.rows * out_row;
  return c;
}

struct RopeShape {
  int32_t dtype, table_dtype, compute_dtype, combine;
  uint32_t flags;
  int32_t pairing_in, pairing_out;
  int64_t batches, tokens, q_heads, k_heads, head_dim, rotary_dim;
  bool full_table, table_per_batch, table_per_head;
  int64_t element_stride;
  int32_t positions_dtype;  // 0: none
  bool heads_first;         // (B, H, S, D) instead of (B, S, H, D)
  bool in_place;
  int64_t gap, skew;
};

// Half pairing, half tables, dense (B, S, H, D), every element rotated; the rest is the test's.
inline RopeShape plain_rope_shape(int64_t tokens, int64_t q_heads, int64_t k_heads, int64_t head_dim,
                                  int32_t dtype = BITEXACT_DTYPE_BFLOAT16) {
  RopeShape s{};
  s.dtype = dtype;
  s.batches = 1;
  s.tokens = tokens;
  s.q_heads = q_heads;
  s.k_heads = k_heads;
  s.head_dim = s.rotary_dim = head_dim;
  s.element_stride = 1;
  return s;
}

struct RopeCase {
  Arena arena;
  bitexact_rope_params params;
};

inline RopeCase make_case(const RopeShape& s, uint64_t seed) {
  RopeCase c{Arena(seed), BITEXACT_ROPE_PARAMS_INIT};
  bitexact_rope_params& p = c.params;
  p.flags = s.flags;
  p.dtype = s.dtype;
  p.table_dtype = s.table_dtype;
  p.compute_dtype = s.compute_dtype;
  p.combine = s.combine;
  p.pairing_in = s.pairing_in;
  p.pairing_out = s.pairing_out;
  p.batches = s.batches;
  p.tokens = s.tokens;
  p.q_heads = s.q_heads;
  p.k_heads = s.k_heads;
  p.head_dim = s.head_dim;
  p.rotary_dim = s.rotary_dim;
  p.table_width = s.full_table ? s.rotary_dim : s.rotary_dim / 2;
  p.table_rows = s.positions_dtype != 0 ? s.tokens + 5 : s.tokens;

  int64_t offsets[4];
  for (int which = 0; which < 2; ++which) {
    const int64_t heads = which == 0 ? s.q_heads : s.k_heads, head = s.head_dim + s.gap;
    const int64_t count = s.batches * s.tokens * heads * head;
    int64_t& in = offsets[2 * which];
    in = c.arena.reserve(count, s.dtype, s.skew);
    for (int64_t i = 0; i < count; ++i) c.arena.put_value(in, i, s.dtype);
    offsets[2 * which + 1] = s.in_place ? in : c.arena.reserve(count, s.dtype, s.skew);
    const int64_t token = s.heads_first ? head : heads * head,
                  head_stride = s.heads_first ? s.tokens * head : head;
    const int64_t batch = s.tokens * heads * head;
    if (which == 0) {
      p.q_in_batch_stride = p.q_out_batch_stride = batch;
      p.q_in_token_stride = p.q_out_token_stride = token;
      p.q_in_head_stride = p.q_out_head_stride = head_stride;
    } else {
      p.k_in_batch_stride = p.k_out_batch_stride = batch;
      p.k_in_token_stride = p.k_out_token_stride = token;
      p.k_in_head_stride = p.k_out_head_stride = head_stride;
    }
  }
  const int32_t table_dtype = s.table_dtype != 0 ? s.table_dtype : s.dtype;
  const int64_t table_heads = s.table_per_head ? std::max<int64_t>(s.q_heads, s.k_heads) : 1;
  const int64_t row = table_heads * p.table_width * s.element_stride;
  const int64_t table_count = (s.table_per_batch ? s.batches : 1) * p.table_rows * row;
  const int64_t cos = c.arena.reserve(table_count, table_dtype, s.skew);
  const int64_t sin = c.arena.reserve(table_count, table_dtype, s.skew);
  for (int64_t i = 0; i < table_count; ++i) {
    c.arena.put_value(cos, i, table_dtype);
    c.arena.put_value(sin, i, table_dtype);
  }
  p.cos_batch_stride = p.sin_batch_stride = s.table_per_batch ? p.table_rows * row : 0;
  p.cos_token_stride = p.sin_token_stride = row;
  p.cos_head_stride = p.sin_head_stride = s.table_per_head ? p.table_width * s.element_stride : 0;
  p.cos_element_stride = p.sin_element_stride = s.element_stride;
  if (s.positions_dtype != 0) {
    p.positions_dtype = s.positions_dtype;
    p.positions_batch_stride = s.tokens;
    p.positions_token_stride = 1;
    const int64_t at = c.arena.reserve(s.batches * s.tokens, s.positions_dtype);
    for (int64_t i = 0; i < s.batches * s.tokens; ++i) {
      // Mostly inside the table; now and then before or behind it.
      int64_t position = static_cast<int64_t>(c.arena.random()() % static_cast<uint64_t>(p.table_rows));
      if (c.arena.random()() % 16 == 0) position = c.arena.random()() % 2 == 0 ? -1 : p.table_rows;
      if (s.positions_dtype == BITEXACT_DTYPE_INT32) {
        c.arena.at<int32_t>(at)[i] = static_cast<int32_t>(position);
      } else {
        c.arena.at<int64_t>(at)[i] = position;
      }
    }
    p.positions = c.arena.at<void>(at);
  }
  p.q_in = c.arena.at<void>(offsets[0]);
  p.q_out = c.arena.at<void>(offsets[1]);
  p.k_in = c.arena.at<void>(offsets[2]);
  p.k_out = c.arena.at<void>(offsets[3]);
  p.cos = c.arena.at<void>(cos);
  p.sin = c.arena.at<void>(sin);
  return c;
}

// The same call on a copy of its arena that starts at `base`.
inline bitexact_silu_mul_params moved(bitexact_silu_mul_params p, const Arena& from, void* base) {
  auto move = [&](const void* pointer) {
    return static_cast<uint8_t*>(base) + (static_cast<const uint8_t*>(pointer) - from.bytes().data());
  };
  p.gate = move(p.gate);
  p.up = move(p.up);
  p.out = move(p.out);
  return p;
}

inline bitexact_rope_params moved(bitexact_rope_params p, const Arena& from, void* base) {
  auto move = [&](const void* pointer) {
    return pointer == nullptr
               ? nullptr
               : static_cast<uint8_t*>(base) + (static_cast<const uint8_t*>(pointer) - from.bytes().data());
  };
  p.q_in = move(p.q_in);
  p.q_out = move(p.q_out);
  p.k_in = move(p.k_in);
  p.k_out = move(p.k_out);
  p.cos = move(p.cos);
  p.sin = move(p.sin);
  p.positions = move(p.positions);
  return p;
}

// ------------------------------------------------------------------------- sets of cases --

// Every n-th of a set, n from the environment variable BITEXACT_TEST_EVERY: for tools under which each call
// takes a hundred times as long.
template <class Shape>
std::vector<Shape> thinned(const std::vector<Shape>& shapes) {
  const char* const every = std::getenv("BITEXACT_TEST_EVERY");
  const size_t step = every != nullptr ? std::max<size_t>(std::strtoul(every, nullptr, 10), 1) : 1;
  std::vector<Shape> some;
  for (size_t i = 0; i < shapes.size(); i += step) some.push_back(shapes[i]);
  return some;
}

// Both sets, thinned.
template <class Shape>
std::vector<Shape> joined(std::vector<Shape> shapes, const std::vector<Shape>& more) {
  shapes.insert(shapes.end(), more.begin(), more.end());
  return thinned(shapes);
}

inline std::vector<SiluMulShape> silu_mul_shapes(bool with_float32) {
  std::vector<SiluMulShape> shapes;
  const int64_t widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 100, 352, 1234, 3420, 4095, 8192, 8200};
  for (int32_t dtype : {BITEXACT_DTYPE_FLOAT32, BITEXACT_DTYPE_FLOAT16, BITEXACT_DTYPE_BFLOAT16}) {
    if (dtype == BITEXACT_DTYPE_FLOAT32 && !with_float32) continue;
    int n = 0;
    for (int64_t cols : widths) {
      for (int64_t rows : {int64_t{1}, int64_t{3}}) {
        ++n;
        const int32_t silu = dtype == BITEXACT_DTYPE_FLOAT32 ? n % 2 : n % 3;
        const bool f32 = with_float32 && silu == BITEXACT_SILU_ATEN && n % 2 == 0;
        const bool packed = n % 4 == 1;
        shapes.push_back({dtype, silu, f32 ? BITEXACT_DTYPE_FLOAT32 : 0, 1 + n % 2, rows, cols,
                          n % 5 == 0 ? 8 : n % 3, n % 7 == 0 ? 1 : 0, packed, static_cast<InPlace>(n % 3)});
        shapes.push_back({dtype, silu, 0, 2, rows, cols, 0, 0, false, InPlace::no});
        const int32_t clamp = n % 4 == 1 ? BITEXACT_CLAMP_BEFORE : n % 4 == 3 ? BITEXACT_CLAMP_AFTER : 0;
        const float limit = clamp == 0 ? 0.0f : n % 5 < 2 ? 10.0f : n % 5 < 4 ? 0.3f : 7.03f;
        const bool one = with_float32 && clamp != BITEXACT_CLAMP_AFTER && n % 8 < 2;
        shapes.push_back({dtype, clamp == 0 ? BITEXACT_SILU_GLU : BITEXACT_SILU_ATEN,
                          one ? BITEXACT_DTYPE_FLOAT32 : 0, 1, rows, cols, n % 5 == 0 ? 8 : n % 3, 0,
                          n % 7 == 0, static_cast<InPlace>(n % 3), clamp, limit});
      }
    }
  }
  return shapes;
}

// Widths from 1 to 64, and those around what makes the dispatcher change its mind.
inline std::vector<SiluMulShape> silu_mul_threshold_shapes(bool with_float32) {
  std::vector<SiluMulShape> shapes;
  for (int32_t dtype : {BITEXACT_DTYPE_FLOAT32, BITEXACT_DTYPE_FLOAT16, BITEXACT_DTYPE_BFLOAT16}) {
    if (dtype == BITEXACT_DTYPE_FLOAT32 && !with_float32) continue;
    for (int64_t cols = 1; cols <= 64; ++cols) {
      shapes.push_back({dtype, 0, 0, 1, 3, cols, cols % 2 == 0 ? 0 : 8 - cols % 8, 0, false, InPlace::no});
      shapes.push_back({dtype, 1, 0, 1, 1, cols, 0, cols % 8, true, InPlace::gate});
    }
    for (const int64_t near : {-1, 0, 1}) {
      shapes.push_back({dtype, 0, 0, 1, 1, bitexact::silu_mul_many + near, 0, 0, false, InPlace::no});
    }
  }
  return shapes;
}

inline std::vector<RopeShape> rope_threshold_shapes() {
  std::vector<RopeShape> shapes;
  struct Dims {
    int64_t batches, tokens, q_heads, k_heads, head_dim, rotary_dim;
  };
  std::vector<Dims> dims;
  for (const int64_t near : {-1, 0, 1}) {
    dims.push_back({1, bitexact::rope_few_tokens + near, 3, 2, 32, 32});
    dims.push_back({2, bitexact::rope_spread_tokens / 2 + near, 2, 1, 32, 16});
    dims.push_back({1, 70, 90 + 60 * near, 5, 96, 64});                     // one to eight blocks a token
    const int64_t head = bitexact::rope_vector_threads * 8 / 2 + 8 * near;  // in 16 bits, 8 bytes a thread
    dims.push_back({1, 2, 1, 1, head, head});
    dims.push_back({1, 2, 2, 1, head, 64});
  }
  const int32_t f32 = BITEXACT_DTYPE_FLOAT32;
  for (int32_t dtype : {BITEXACT_DTYPE_FLOAT32, BITEXACT_DTYPE_FLOAT16, BITEXACT_DTYPE_BFLOAT16}) {
    for (int32_t table : {0, f32}) {
      for (int pairing = 0; pairing < 2; ++pairing) {
        for (const Dims& d : dims) {
          for (const bool heads_first : {false, true}) {
            RopeShape s{};
            s.dtype = dtype;
            s.table_dtype = table;
            s.pairing_in = s.pairing_out = pairing;
            s.batches = d.batches;
            s.tokens = d.tokens;
            s.q_heads = d.q_heads;
            s.k_heads = d.k_heads;
            s.head_dim = d.head_dim;
            s.rotary_dim = d.rotary_dim;
            s.full_table = shapes.size() % 3 != 0;
            s.element_stride = 1;
            s.heads_first = heads_first;
            shapes.push_back(s);
          }
        }
      }
    }
  }
  return shapes;
}

// Every dtype, numerics and pairing, over layouts that change from one to the next.
inline std::vector<RopeShape> rope_shapes() {
  std::vector<RopeShape> shapes;
  struct Dims {
    int64_t batches, tokens, q_heads, k_heads, head_dim, rotary_dim;
  };
  const Dims dims[] = {{2, 5, 3, 1, 128, 128}, {1, 33, 4, 2, 64, 64}, {1, 1, 8, 8, 100, 100},
                       {3, 2, 2, 0, 80, 32},   {1, 7, 1, 5, 65, 64},  {2, 3, 0, 2, 256, 256},
                       {1, 4, 2, 2, 20, 0},    {1, 3, 5, 3, 96, 24},  {1, 600, 2, 1, 32, 32},
                       {5, 1, 2, 2, 48, 16},   {1, 2, 1, 1, 2, 2},    {1, 2, 40, 8, 512, 512},
                       {1, 70, 3, 2, 72, 72}};
  unsigned n = 0;
  const int32_t f32 = BITEXACT_DTYPE_FLOAT32, f64 = BITEXACT_DTYPE_FLOAT64;
  for (int32_t dtype : {BITEXACT_DTYPE_FLOAT32, BITEXACT_DTYPE_FLOAT16, BITEXACT_DTYPE_BFLOAT16}) {
    for (int32_t table : {0, f32, f64}) {
      for (int32_t compute : {0, f32, f64}) {
        if (table == f64 && compute == f32) continue;
        for (int32_t numerics = 0; numerics < 6; ++numerics) {
          for (int pairings = 0; pairings < 4; ++pairings) {
            for (int layout = 0; layout < 2; ++layout, ++n) {
              const Dims& d = dims[n % 13];
              const bool same = (pairings & 1) == (pairings >> 1);
              RopeShape s{};
              s.dtype = dtype;
              s.table_dtype = table;
              s.compute_dtype = compute;
              s.combine = numerics == 5 ? 0 : numerics;
              s.flags = (numerics == 5 ? BITEXACT_ROPE_SUM_FROM_ZERO : 0u) |
                        (n % 3 == 0 ? BITEXACT_ROPE_INVERSE : 0u);
              s.pairing_in = pairings & 1;
              s.pairing_out = pairings >> 1;
              s.batches = d.batches;
              s.tokens = d.tokens;
              s.q_heads = d.q_heads;
              s.k_heads = d.k_heads;
              s.head_dim = d.head_dim;
              s.rotary_dim = d.rotary_dim;
              s.full_table = n % 2 == 0;
              s.table_per_batch = n % 5 == 0;
              s.table_per_head = n % 7 == 0;
              s.element_stride = n % 4 == 3 ? 2 : 1;
              s.positions_dtype = n % 3 == 1 ? (n % 2 == 0 ? BITEXACT_DTYPE_INT32 : BITEXACT_DTYPE_INT64) : 0;
              s.heads_first = n % 4 >= 2;
              s.in_place = same && n % 3 == 2;
              s.gap = layout == 0 ? 0 : (n % 2 == 0 ? 8 : 3);
              s.skew = n % 6 == 5 ? 1 : 0;
              shapes.push_back(s);
            }
          }
        }
      }
    }
  }
  return shapes;
}

inline std::ostream& operator<<(std::ostream& to, const SiluMulShape& s) {
  return to << "dtype " << s.dtype << " silu " << s.silu << " compute " << s.compute_dtype << " clamp "
            << s.clamp << " limit " << s.limit << " shape " << s.batches << "x" << s.rows << "x" << s.cols
            << " gap " << s.gap << " skew " << s.skew << " packed " << s.packed << " in_place "
            << static_cast<int>(s.in_place);
}

inline std::ostream& operator<<(std::ostream& to, const RopeShape& s) {
  return to << "dtype " << s.dtype << " table " << s.table_dtype << " compute " << s.compute_dtype
            << " combine " << s.combine << " flags " << s.flags << " pairing " << s.pairing_in << "->"
            << s.pairing_out << " shape " << s.batches << "x" << s.tokens << "x(" << s.q_heads << ","
            << s.k_heads << ")x" << s.head_dim << "/" << s.rotary_dim << " full " << s.full_table
            << " per batch " << s.table_per_batch << " per head " << s.table_per_head << " element "
            << s.element_stride << " positions " << s.positions_dtype << " heads_first " << s.heads_first
            << " in_place " << s.in_place << " gap " << s.gap << " skew " << s.skew;
}

}  // namespace bitexact_test
