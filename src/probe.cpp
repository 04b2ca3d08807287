#include "probe.h"

#include <cmath>
#include <cstring>

namespace bitexact {
namespace {

// ---------------------------------------------------------------------------------- random --

// splitmix64: the same inputs on every machine.
class Random {
 public:
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }           // [0, 1)
  double around_one() { return (unit() - 0.5) * (bits() % 2 == 0 ? 4.0 : 0.5); }  // both signs
  bool one_in(unsigned n) { return bits() % n == 0; }

 private:
  uint64_t state_ = 0x6269746578616374u;
};

// ---------------------------------------------------------------------------------- values --

// Bits of a number cut (not rounded) to a dtype: enough for making inputs.
uint64_t cut(double x, Dtype dtype) {
  if (dtype == Dtype::float64) {
    uint64_t bits;
    std::memcpy(&bits, &x, 8);
    return bits;
  }
  const float f = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (dtype == Dtype::float32) return bits;
  if (dtype == Dtype::bfloat16) return bits >> 16;
  const uint32_t sign = bits >> 31 << 15;
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + 15;
  if (exponent <= 0) return sign;
  if (exponent >= 31) return sign | 0x7bff;
  return sign | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ff);
}

struct Layout {
  int exponent_bits, fraction_bits;
};
Layout layout_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bfloat16: return {8, 7};
    case Dtype::float16: return {5, 10};
    case Dtype::float32: return {8, 23};
    default: return {11, 52};
  }
}

// Zeros, least and greatest subnormals and normals, infinities, NaNs with payloads; either sign.
uint64_t special(Dtype dtype, Random& random) {
  const Layout l = layout_of(dtype);
  const uint64_t infinity = ((uint64_t{1} << l.exponent_bits) - 1) << l.fraction_bits;
  const uint64_t least_normal = uint64_t{1} << l.fraction_bits;
  const uint64_t list[] = {0,
                           0,
                           1,
                           least_normal - 1,
                           least_normal,
                           least_normal + 1,
                           infinity - 1,
                           infinity,
                           infinity | 1,
                           infinity | least_normal >> 1,
                           infinity | (least_normal - 1)};
  const uint64_t sign = (random.bits() & 1) << (l.exponent_bits + l.fraction_bits);
  return sign | list[random.bits() % (sizeof(list) / sizeof(list[0]))];
}

uint64_t any_bits(Dtype dtype, Random& random) { return random.bits() >> (64 - 8 * size_of(dtype)); }

void put(std::vector<unsigned char>& to, int64_t offset, int64_t index, Dtype dtype, uint64_t bits) {
  std::memcpy(to.data() + offset + index * size_of(dtype), &bits, static_cast<size_t>(size_of(dtype)));
}

// Room for n elements; offsets are never zero, so that a null pointer stays one.
int64_t reserve(std::vector<unsigned char>& to, int64_t n, Dtype dtype) {
  const size_t offset = to.size() + 256;
  to.resize(offset + static_cast<size_t>((n * size_of(dtype) + 255) / 256 * 256));
  return static_cast<int64_t>(offset);
}

void* as_pointer(int64_t offset) { return reinterpret_cast<void*>(offset); }
template <class Pointer>
void locate(Pointer& pointer, void* base) {
  if (pointer != nullptr) pointer = static_cast<char*>(base) + reinterpret_cast<intptr_t>(pointer);
}

// -------------------------------------------------------------------------------- silu_mul --

// The models' limit; one that no 16-bit type holds, which silu shows; one beyond float16, one below it, and one
// that limits nothing.
constexpr float probe_limits[] = {10.0f, 0.3f, 7.03f, 65520.0f, 1e-7f, 1e30f};

// The limit's neighbours and itself, of either sign.
uint64_t around(float limit, Dtype dtype, Random& random) {
  const uint64_t magnitude = cut(limit, dtype) + random.bits() % 5, sign = random.bits() & 1;
  return sign << (8 * size_of(dtype) - 1) | (magnitude < 2 ? 0 : magnitude - 2);
}

// Row 0 has up = 1 and so shows silu itself; the others pair each gate with other ups.
uint64_t probe_up(int64_t row, const SiluMulArgs& a, Random& random) {
  const Dtype dtype = a.dtype;
  if (row == 0) return cut(1.0, dtype);
  if (a.clamp != Clamp::none && row % 2 == 1) return around(a.limit, dtype, random);
  if (row % 3 == 0) return special(dtype, random);
  return row % 3 == 1 ? cut(random.around_one(), dtype) : any_bits(dtype, random);
}

uint64_t probe_gate(int64_t col, const SiluMulArgs& a, Random& random) {
  const Dtype dtype = a.dtype;
  const bool every = size_of(dtype) == 2 && a.cols == 65536;
  if (a.clamp != Clamp::none && !every && col % 3 != 2) return around(a.limit, dtype, random);
  if (size_of(dtype) == 2) return static_cast<uint64_t>(col & 0xffff);  // every gate there is
  switch (col % 4) {
    case 0: return cut((random.unit() - 0.5) * 40, dtype);
    case 1: return cut(-80.0 - random.unit() * 25, dtype);  // expf near its overflow, silu subnormal
    case 2: return special(dtype, random);
    default: return any_bits(dtype, random);
  }
}

void add_case(Probe<SiluMulArgs>& probe, SiluMulArgs a, int64_t rows, int64_t cols, int64_t gap, float limit,
              Random& random) {
  const int64_t row = padded(cols + gap, a.dtype);
  a.limit = a.clamp == Clamp::none ? 0.0f : limit;
  a.batches = 1;
  a.rows = rows;
  a.cols = cols;
  const int64_t gate = reserve(probe.inputs, rows * row, a.dtype);
  const int64_t up = reserve(probe.inputs, rows * row, a.dtype);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      put(probe.inputs, gate, r * row + c, a.dtype, probe_gate(c, a, random));
      put(probe.inputs, up, r * row + c, a.dtype, probe_up(r, a, random));
    }
  }
  a.gate = {as_pointer(gate), rows * row, row};
  a.up = {as_pointer(up), rows * row, row};
  probe.cases.push_back(a);
}

// ------------------------------------------------------------------------------------ rope --

constexpr int64_t probe_rotary = 64;

// One table entry for both cos and sin, by token.
void probe_entry(int64_t token, Dtype dtype, Random& random, uint64_t& c, uint64_t& s) {
  const double angle = random.unit() * 6.283185307179586;
  c = cut(std::cos(angle), dtype);
  s = cut(std::sin(angle), dtype);
  switch (token % 6) {
    case 0: s = c; break;  // with x1 == x2 the sum cancels: a contraction leaves a rest
    case 1: c = any_bits(dtype, random), s = any_bits(dtype, random); break;
    case 2:
      if (random.one_in(2)) c = special(dtype, random);
      if (random.one_in(2)) s = special(dtype, random);
      break;
    case 3:  // just past a tie of each narrower type: rounding once or twice shows
      c = cut((1.0 + 0x1p-8 + 0x1p-11 + static_cast<double>(random.bits() % 4) * 0x1p-7) + 0x1p-35, dtype);
      s = 0;
      break;
    default: break;
  }
}

// A pair for the entry (c, s).
void probe_pair(Dtype dtype, Dtype table_dtype, uint64_t c, uint64_t s, Random& random, uint64_t& x1,
                uint64_t& x2) {
  x1 = cut(random.around_one(), dtype);
  x2 = cut(random.around_one(), dtype);
  switch (random.bits() % 8) {
    case 0: x2 = x1; break;
    case 1:
      if (dtype == table_dtype) x1 = s, x2 = c;  // x1 * c - x2 * s cancels
      break;
    case 2: x1 = any_bits(dtype, random), x2 = any_bits(dtype, random); break;
    case 3: x1 = special(dtype, random); break;
    case 4: x2 = special(dtype, random); break;
    case 5: x1 = special(dtype, random), x2 = special(dtype, random); break;
    case 6: x1 = cut(std::ldexp(1.0, static_cast<int>(random.bits() % 8) - 4), dtype); break;
    default: break;
  }
}

struct RopeCase {
  bool full_table, per_head, by_position, inverse;
  int64_t element;  // stride of table entries
  int64_t tokens;
  int64_t heads[2];
  int64_t head_dim;
};

void add_case(Probe<RopeArgs>& probe, RopeArgs a, const RopeCase& form, Random& random) {
  const int64_t tokens = form.tokens, half = probe_rotary / 2, width = form.full_table ? probe_rotary : half;
  const int64_t table_heads = form.per_head ? std::max(form.heads[0], form.heads[1]) : 1;
  a.batches = 2;
  a.tokens = tokens;
  a.head_dim = form.head_dim;
  a.rotary_dim = probe_rotary;
  a.table_rows = tokens;
  a.full_table = form.full_table;
  a.inverse = form.inverse;
  const int64_t head_stride = form.per_head ? width * form.element : 0;
  const int64_t token_stride = table_heads * width * form.element;
  std::vector<uint64_t> cos(static_cast<size_t>(tokens * table_heads * width)), sin(cos.size());
  const int64_t cos_at = reserve(probe.inputs, tokens * token_stride, a.table_dtype);
  const int64_t sin_at = reserve(probe.inputs, tokens * token_stride, a.table_dtype);
  for (size_t i = 0; i < cos.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    probe_entry(at / (table_heads * width), a.table_dtype, random, cos[i], sin[i]);
    put(probe.inputs, cos_at, at * form.element, a.table_dtype, cos[i]);
    put(probe.inputs, sin_at, at * form.element, a.table_dtype, sin[i]);
  }
  a.cos = {as_pointer(cos_at), 0, token_stride, head_stride, form.element};
  a.sin = {as_pointer(sin_at), 0, token_stride, head_stride, form.element};

  auto row_of = [&](int64_t b, int64_t t) {  // the last token's position lies outside the table
    return form.by_position ? (t == tokens - 1 ? tokens + b : (t * 7 + b) % tokens) : t;
  };
  if (form.by_position) {
    const int64_t at = reserve(probe.inputs, 2 * tokens, Dtype::int64);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t t = 0; t < tokens; ++t) {
        put(probe.inputs, at, b * tokens + t, Dtype::int64, static_cast<uint64_t>(row_of(b, t)));
      }
    }
    a.positions = {as_pointer(at), tokens, 1, Dtype::int64};
  }
  for (int which = 0; which < 2; ++which) {
    const int64_t heads = a.heads[which] = form.heads[which];
    if (heads == 0) continue;
    const int64_t head = form.head_dim + 8, token = heads * head + 8, batch = tokens * token;
    const int64_t data = reserve(probe.inputs, 2 * batch, a.dtype);
    a.in[which] = {as_pointer(data), batch, token, head};
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = b * batch + t * token + h * head;
          const int64_t row = std::min(row_of(b, t), tokens - 1);
          for (int64_t j = 0; j < half; ++j) {
            const int64_t first = a.pairing_in == Pairing::half ? j : 2 * j;
            const int64_t second = a.pairing_in == Pairing::half ? j + half : 2 * j + 1;
            const size_t entry = static_cast<size_t>((row * table_heads + (form.per_head ? h : 0)) * width +
                                                     (form.full_table ? first : j));
            uint64_t x1, x2;
            probe_pair(a.dtype, a.table_dtype, cos[entry], sin[entry], random, x1, x2);
            put(probe.inputs, data, at + first, a.dtype, x1);
            put(probe.inputs, data, at + second, a.dtype, x2);
          }
          for (int64_t d = probe_rotary; d < form.head_dim; ++d) {
            put(probe.inputs, data, at + d, a.dtype, any_bits(a.dtype, random));
          }
        }
      }
    }
  }
  probe.cases.push_back(a);
}

}  // namespace

Probe<SiluMulArgs> make_probe(const SiluMulArgs& kernel) {
  Probe<SiluMulArgs> probe;
  Random random;
  for (int i = 0; i < (kernel.clamp == Clamp::none ? 1 : 2); ++i) {
    add_case(probe, kernel, 4, 65536, 0, probe_limits[i], random);
  }
  // Columns that no whole vector covers, behind a gap, for each rest of 16 bytes.
  for (int64_t cols = 17; cols < 25; ++cols) {
    add_case(probe, kernel, 16, cols, 8, probe_limits[cols % 6], random);
  }
  return probe;
}

Probe<RopeArgs> make_probe(const RopeArgs& kernel) {
  Probe<RopeArgs> probe;
  Random random;
  // One long enough for the launcher to walk over heads instead of spreading them, one of so many heads that a token
  // has several blocks; heads with a tail, which lanes pack, and heads that they align.
  const RopeCase forms[] = {
      // full   per head positions inverse element tokens heads head_dim
      {true, false, false, false, 1, 24, {5, 3}, 72},  {false, false, false, false, 1, 24, {3, 5}, 72},
      {false, false, true, true, 2, 24, {2, 0}, 72},   {true, true, false, false, 1, 24, {2, 3}, 72},
      {true, false, true, false, 4, 24, {1, 1}, 72},   {false, false, true, false, 1, 24, {8, 0}, 72},
      {false, false, false, true, 1, 264, {1, 7}, 64}, {true, false, false, false, 1, 3, {49, 20}, 64},
      {false, false, true, true, 1, 3, {33, 33}, 64},  {true, false, true, false, 1, 24, {1, 4}, 64},
  };
  for (const RopeCase& form : forms) add_case(probe, kernel, form, random);
  return probe;
}

SiluMulArgs located(SiluMulArgs a, void* inputs) {
  locate(a.gate.data, inputs);
  locate(a.up.data, inputs);
  return a;
}

RopeArgs located(RopeArgs a, void* inputs) {
  for (Heads& in : a.in) locate(in.data, inputs);
  auto constant = [&](const void*& pointer) {
    void* p = const_cast<void*>(pointer);
    locate(p, inputs);
    pointer = p;
  };
  constant(a.cos.data);
  constant(a.sin.data);
  constant(a.positions.data);
  return a;
}

}  // namespace bitexact
