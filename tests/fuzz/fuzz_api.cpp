// Random calls of the C interface, on the host backend: none may crash, read or write outside its tensors, or
// give a bit that the reference in tests/reference does not give. A refused call must say why and leave every
// byte alone; can_use must say what the call does.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bitexact.h"
#include "reference/reference.h"

namespace {

using Provider = FuzzedDataProvider;

constexpr int64_t arena_bytes = 8192;  // eight places, one for each tensor of a call

// What came of the runs, told at the end: a fuzzer whose calls are all refused proves little.
struct Tally {
  unsigned long long compared = 0, refused = 0, noise = 0, elsewhere = 0;
  ~Tally() {
    std::fprintf(stderr,
                 "fuzz_api: %llu calls compared with the reference, %llu refused, %llu only checked\n",
                 compared, refused, noise + elsewhere);
  }
} tally;

[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "fuzz_api: %s; last error: %s\n", what, bitexact_last_error());
  std::abort();
}
void require(bool holds, const char* what) {
  if (!holds) wrong(what);
}

bitexact_context* context_for(int32_t policy, int32_t mode) {
  static bitexact_context* contexts[5][2] = {};
  bitexact_context*& context = contexts[policy][mode];
  if (context == nullptr) {
    bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
    options.device = BITEXACT_DEVICE_HOST;
    options.gate_policy = policy;
    options.reference_mode = mode;
    require(bitexact_context_create(&options, &context) == BITEXACT_STATUS_OK, "no host context");
  }
  return context;
}

// What these overloads call is the same for both operations.
int32_t can_use(bitexact_context* c, const bitexact_silu_mul_params* p) {
  return bitexact_fused_silu_mul_can_use(c, p);
}
int32_t can_use(bitexact_context* c, const bitexact_rope_params* p) {
  return bitexact_fused_rope_can_use(c, p);
}
int32_t run(bitexact_context* c, const bitexact_silu_mul_params* p) {
  return bitexact_fused_silu_mul(c, p, nullptr);
}
int32_t run(bitexact_context* c, const bitexact_rope_params* p) { return bitexact_fused_rope(c, p, nullptr); }
void expect(const bitexact_silu_mul_params& p) { bitexact_reference::silu_mul(p); }
void expect(const bitexact_rope_params& p) { bitexact_reference::rope(p, nullptr); }

int64_t size_of(int32_t dtype) {
  switch (dtype) {
    case BITEXACT_DTYPE_FLOAT16:
    case BITEXACT_DTYPE_BFLOAT16: return 2;
    case BITEXACT_DTYPE_FLOAT64:
    case BITEXACT_DTYPE_INT64: return 8;
    default: return 4;
  }
}

// ------------------------------------------------------------------------------ the memory --

struct Axis {
  int64_t count, stride;
};

// Does a tensor of these axes at byte `offset` lie inside the arena?
bool inside(int64_t offset, int64_t size, std::initializer_list<Axis> axes) {
  __int128 low = offset, high = __int128{offset} + size;
  for (const Axis& axis : axes) {
    if (axis.count == 0) return true;
    const __int128 reach = __int128{axis.count - 1} * axis.stride * size;
    (reach < 0 ? low : high) += reach;
  }
  return low >= 0 && high <= arena_bytes;
}

// Pointers of a call are offsets until it is known where its arena lies.
int64_t offset_of(const void* pointer) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer)) - 4096;
}
void* as_offset(int64_t offset) { return reinterpret_cast<void*>(static_cast<uintptr_t>(offset + 4096)); }

bool is_empty(const bitexact_silu_mul_params& p) { return p.batches == 0 || p.rows == 0 || p.cols == 0; }
bool is_empty(const bitexact_rope_params& p) {
  return p.batches == 0 || p.tokens == 0 || p.head_dim == 0 || p.q_heads + p.k_heads == 0;
}

template <class T>
void move_pointer(T*& pointer, uint8_t* base) {
  if (pointer != nullptr) pointer = base + offset_of(pointer);
}

bitexact_silu_mul_params placed(bitexact_silu_mul_params p, uint8_t* base) {
  move_pointer(p.gate, base);
  move_pointer(p.up, base);
  move_pointer(p.out, base);
  return p;
}
bitexact_rope_params placed(bitexact_rope_params p, uint8_t* base) {
  move_pointer(p.q_in, base);
  move_pointer(p.q_out, base);
  move_pointer(p.k_in, base);
  move_pointer(p.k_out, base);
  move_pointer(p.cos, base);
  move_pointer(p.sin, base);
  move_pointer(p.positions, base);
  return p;
}

bool inside(const bitexact_silu_mul_params& p) {
  if (is_empty(p)) return true;
  auto fits = [&](const void* data, int64_t batch, int64_t row) {
    return inside(offset_of(data), size_of(p.dtype), {{p.batches, batch}, {p.rows, row}, {p.cols, 1}});
  };
  return fits(p.gate, p.gate_batch_stride, p.gate_row_stride) &&
         fits(p.up, p.up_batch_stride, p.up_row_stride) && fits(p.out, p.out_batch_stride, p.out_row_stride);
}
bool inside(const bitexact_rope_params& p) {
  if (is_empty(p)) return true;
  auto fits = [&](const void* data, int64_t heads, int64_t batch, int64_t token, int64_t head) {
    return heads == 0 || inside(offset_of(data), size_of(p.dtype),
                                {{p.batches, batch}, {p.tokens, token}, {heads, head}, {p.head_dim, 1}});
  };
  const int64_t heads = p.q_heads > p.k_heads ? p.q_heads : p.k_heads;
  const int32_t table_dtype = p.table_dtype != 0 ? p.table_dtype : p.dtype;
  auto table_fits = [&](const void* data, int64_t batch, int64_t token, int64_t head, int64_t element) {
    const int64_t rows = p.positions != nullptr ? p.table_rows : p.tokens;
    return p.rotary_dim == 0 ||
           inside(offset_of(data), size_of(table_dtype),
                  {{p.batches, batch}, {rows, token}, {heads, head}, {p.table_width, element}});
  };
  return fits(p.q_in, p.q_heads, p.q_in_batch_stride, p.q_in_token_stride, p.q_in_head_stride) &&
         fits(p.q_out, p.q_heads, p.q_out_batch_stride, p.q_out_token_stride, p.q_out_head_stride) &&
         fits(p.k_in, p.k_heads, p.k_in_batch_stride, p.k_in_token_stride, p.k_in_head_stride) &&
         fits(p.k_out, p.k_heads, p.k_out_batch_stride, p.k_out_token_stride, p.k_out_head_stride) &&
         table_fits(p.cos, p.cos_batch_stride, p.cos_token_stride, p.cos_head_stride, p.cos_element_stride) &&
         table_fits(p.sin, p.sin_batch_stride, p.sin_token_stride, p.sin_head_stride, p.sin_element_stride) &&
         (p.positions == nullptr || p.rotary_dim == 0 ||
          inside(offset_of(p.positions), size_of(p.positions_dtype),
                 {{p.batches, p.positions_batch_stride}, {p.tokens, p.positions_token_stride}}));
}

// ------------------------------------------------------------------------------- the calls --

// Mostly small, now and then far out.
int64_t a_size(Provider& from, int64_t largest) {
  static const int64_t extremes[] = {-1, INT64_MAX, INT64_MIN, int64_t{1} << 31, int64_t{1} << 32, 65536};
  const uint8_t kind = from.ConsumeIntegral<uint8_t>();
  if (kind == 255) return from.PickValueInArray(extremes);
  return from.ConsumeIntegralInRange<int64_t>(kind > 247 ? 0 : 1, largest);
}
int64_t a_stride(Provider& from, int64_t dense) {
  static const int64_t extremes[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, int64_t{1} << 62};
  dense %= int64_t{1} << 40;
  switch (from.ConsumeIntegral<uint8_t>() % 16) {
    case 15: return from.ConsumeIntegralInRange<int64_t>(-40, 40);
    case 14: return 0;
    case 13: return dense + from.ConsumeIntegralInRange<int64_t>(0, 9);
    case 12: return from.ConsumeBool() ? -dense : dense;
    case 11: return from.ConsumeIntegral<uint8_t>() == 255 ? from.PickValueInArray(extremes) : dense;
    default: return dense;
  }
}
void* a_pointer(Provider& from, int place, int64_t size) {
  const uint8_t kind = from.ConsumeIntegral<uint8_t>();
  if (kind == 255) return nullptr;
  if (kind > 239) return as_offset(from.ConsumeIntegralInRange<int64_t>(0, arena_bytes - 1));
  return as_offset(place * arena_bytes / 8 + kind % 16 * size);
}
// Of a tensor: mostly one that there is. A host context has no silu in float32.
int32_t a_dtype(Provider& from, bool rope) {
  const uint8_t kind = from.ConsumeIntegral<uint8_t>();
  if (kind == 255) return from.ConsumeIntegral<int32_t>();
  if (kind > 247) return kind % 7;
  return BITEXACT_DTYPE_BFLOAT16 - kind % (rope || kind > 240 ? 3 : 2);
}
int32_t a_value(Provider& from, int32_t most) {
  return from.ConsumeIntegral<uint8_t>() == 255 ? from.ConsumeIntegral<int32_t>()
                                                : from.ConsumeIntegralInRange<int32_t>(0, most);
}
uint32_t some_flags(Provider& from, uint32_t known) {
  return from.ConsumeIntegral<uint8_t>() == 255 ? from.ConsumeIntegral<uint32_t>()
                                                : from.ConsumeIntegral<uint32_t>() & known;
}

void draw(Provider& from, bitexact_silu_mul_params& p) {
  p.flags = some_flags(from, 0);
  p.dtype = a_dtype(from, false);
  p.compute_dtype = from.ConsumeIntegral<uint8_t>() > 247 ? a_value(from, 4) : 0;
  p.silu = a_value(from, BITEXACT_SILU_GLU);
  p.batches = a_size(from, 2);
  p.rows = a_size(from, 4);
  p.cols = a_size(from, 70);
  const int64_t size = size_of(p.dtype);
  p.gate = a_pointer(from, 0, size);
  p.up = from.ConsumeBool() ? as_offset(offset_of(p.gate) + p.cols % 4096 * size) : a_pointer(from, 2, size);
  const uint8_t place = from.ConsumeIntegral<uint8_t>() % 8;
  p.out = place == 0   ? const_cast<void*>(p.gate)
          : place == 1 ? const_cast<void*>(p.up)
                       : a_pointer(from, 5, size);
  p.gate_row_stride = a_stride(from, p.cols);
  p.up_row_stride = from.ConsumeBool() ? p.gate_row_stride : a_stride(from, p.cols);
  p.out_row_stride = place < 2 ? p.gate_row_stride : a_stride(from, p.cols);
  const int64_t rows = p.rows % 4096;
  p.gate_batch_stride = a_stride(from, rows * (p.gate_row_stride % 4096));
  p.up_batch_stride = a_stride(from, rows * (p.up_row_stride % 4096));
  p.out_batch_stride = a_stride(from, rows * (p.out_row_stride % 4096));
  p.clamp = from.ConsumeBool() ? a_value(from, BITEXACT_CLAMP_AFTER) : BITEXACT_CLAMP_NONE;
  // Mostly a limit where one belongs: between 2^-24 and 2^33, most of which no 16-bit type holds.
  const uint32_t bits = from.ConsumeIntegral<uint32_t>();
  const bool any = from.ConsumeIntegral<uint8_t>() == 255;
  p.limit_bits = any ? bits : p.clamp != BITEXACT_CLAMP_NONE ? 0x33800000 + bits % 0x1c800000 : 0;
}

void draw_heads(Provider& from, const bitexact_rope_params& p, int64_t heads, int64_t& batch, int64_t& token,
                int64_t& head) {
  head = a_stride(from, p.head_dim);
  token = a_stride(from, heads % 4096 * (p.head_dim % 4096));
  batch = a_stride(from, p.tokens % 4096 * (token % 4096));
}

void draw(Provider& from, bitexact_rope_params& p) {
  p.flags = some_flags(from, BITEXACT_ROPE_INVERSE | BITEXACT_ROPE_SUM_FROM_ZERO);
  p.dtype = a_dtype(from, true);
  p.table_dtype = from.ConsumeBool() ? a_value(from, 4) : 0;
  p.compute_dtype = from.ConsumeBool() ? a_value(from, 4) : 0;
  p.combine = a_value(from, 4);
  p.pairing_in = a_value(from, 1);
  p.pairing_out = from.ConsumeBool() ? a_value(from, 1) : p.pairing_in;
  p.batches = a_size(from, 2);
  p.tokens = a_size(from, 3);
  p.q_heads = a_size(from, 3);
  p.k_heads = a_size(from, 2);
  p.head_dim = a_size(from, 40);
  p.rotary_dim = (from.ConsumeBool() ? a_size(from, 40) : p.head_dim) & ~int64_t{1};
  p.table_width = from.ConsumeBool() ? p.rotary_dim : p.rotary_dim / 2;
  if (from.ConsumeIntegral<uint8_t>() == 255) ++p.table_width;
  p.table_rows = from.ConsumeBool() ? a_size(from, 6) : p.tokens;
  const int64_t size = size_of(p.dtype), table = size_of(p.table_dtype != 0 ? p.table_dtype : p.dtype);
  draw_heads(from, p, p.q_heads, p.q_in_batch_stride, p.q_in_token_stride, p.q_in_head_stride);
  draw_heads(from, p, p.k_heads, p.k_in_batch_stride, p.k_in_token_stride, p.k_in_head_stride);
  p.q_in = a_pointer(from, 0, size);
  p.k_in = a_pointer(from, 1, size);
  if (from.ConsumeIntegral<uint8_t>() % 4 == 0) {
    p.q_out = const_cast<void*>(p.q_in);
    p.k_out = const_cast<void*>(p.k_in);
    p.q_out_batch_stride = p.q_in_batch_stride;
    p.q_out_token_stride = p.q_in_token_stride;
    p.q_out_head_stride = p.q_in_head_stride;
    p.k_out_batch_stride = p.k_in_batch_stride;
    p.k_out_token_stride = p.k_in_token_stride;
    p.k_out_head_stride = p.k_in_head_stride;
  } else {
    draw_heads(from, p, p.q_heads, p.q_out_batch_stride, p.q_out_token_stride, p.q_out_head_stride);
    draw_heads(from, p, p.k_heads, p.k_out_batch_stride, p.k_out_token_stride, p.k_out_head_stride);
    p.q_out = a_pointer(from, 2, size);
    p.k_out = a_pointer(from, 3, size);
  }
  p.cos = a_pointer(from, 4, table);
  p.sin = a_pointer(from, 5, table);
  p.cos_element_stride = p.sin_element_stride = from.ConsumeIntegralInRange<int64_t>(0, 2);
  p.cos_token_stride = a_stride(from, p.table_width);
  p.sin_token_stride = a_stride(from, p.table_width);
  p.cos_head_stride = a_stride(from, 0);
  p.sin_head_stride = a_stride(from, 0);
  p.cos_batch_stride = a_stride(from, 0);
  p.sin_batch_stride = a_stride(from, 0);
  if (from.ConsumeBool()) {
    p.positions_dtype = from.ConsumeBool() ? BITEXACT_DTYPE_INT32 : a_value(from, 6);
    p.positions = a_pointer(from, 6, size_of(p.positions_dtype));
    p.positions_token_stride = a_stride(from, 1);
    p.positions_batch_stride = a_stride(from, p.tokens % 4096);
  }
}

// ------------------------------------------------------------------------------ what holds --

void require_reason(int32_t status) {
  if (status == BITEXACT_STATUS_OK) return;
  require(std::strcmp(bitexact_status_string(status), "unknown status") != 0, "a status without a name");
  require(*bitexact_last_error() != 0, "a refusal without a text");
  require(status < 100 || status >= 200, "an argument was taken for a fault of the environment");
}

std::vector<uint8_t> fresh_arena(Provider& from) {
  std::vector<uint8_t> bytes(arena_bytes);
  uint64_t x = from.ConsumeIntegral<uint64_t>();
  for (size_t i = 0; i < bytes.size(); i += 8) {
    x += 0x9e3779b97f4a7c15u;
    uint64_t z = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 27;
    std::memcpy(&bytes[i], &z, 8);
  }
  // Small integers here and there, so that some positions lie inside their tables.
  for (int n = from.ConsumeIntegralInRange<int>(0, 8); n > 0; --n) {
    const size_t word = from.ConsumeIntegralInRange<size_t>(0, bytes.size() / 8 - 1) * 8;
    const int64_t value = from.ConsumeIntegralInRange<int64_t>(-1, 6);
    std::memcpy(&bytes[word], &value, 8);
  }
  return bytes;
}

template <class Params>
void call_once(Provider& from, Params p) {
  draw(from, p);
  const int32_t alone = can_use(nullptr, &p);
  require_reason(alone);
  if (alone == BITEXACT_STATUS_OK && !inside(p)) {  // sound, but not in this memory
    ++tally.elsewhere;
    return;
  }
  // A kernel's first check takes long: most calls are trusted, the reference here is the check.
  const uint8_t kind = from.ConsumeIntegral<uint8_t>();
  bitexact_context* const context =
      context_for(kind < 240 ? BITEXACT_POLICY_TRUST : kind % 5, kind == 255 ? 1 : 0);
  const std::vector<uint8_t> before = fresh_arena(from);
  // A block of its own for each: the sanitizer sees what leaves it.
  const std::unique_ptr<uint8_t[]> actual(new uint8_t[arena_bytes]);
  std::memcpy(actual.get(), before.data(), arena_bytes);
  const Params here = placed(p, actual.get());
  const int32_t asked = can_use(context, &here);
  require_reason(asked);
  const int32_t status = run(context, &here);
  require_reason(status);
  if (alone != BITEXACT_STATUS_OK) require(asked == alone && status == alone, "three answers to one mistake");
  if (asked == BITEXACT_STATUS_UNVERIFIED || asked == BITEXACT_STATUS_DECLINED) {
    require(status == asked || status == BITEXACT_STATUS_OK, "can_use and the call disagree");
  } else {
    require(status == asked, "can_use and the call disagree");
  }
  if (status != BITEXACT_STATUS_OK) {
    require(std::memcmp(actual.get(), before.data(), arena_bytes) == 0, "a refused call wrote");
    ++tally.refused;
    return;
  }
  std::vector<uint8_t> expected = before;
  const Params there = placed(p, expected.data());
  if (!is_empty(p)) expect(there);
  require(std::memcmp(actual.get(), expected.data(), arena_bytes) == 0, "wrong bits");
  if (!is_empty(p)) ++tally.compared;
}

// Any bytes at all, as a struct of any size: checked, never dereferenced.
template <class Params>
void call_with_noise(Provider& from) {
  std::vector<uint8_t> block(4096);
  const uint32_t size = from.ConsumeBool() ? sizeof(Params) : from.ConsumeIntegralInRange<uint32_t>(0, 4104);
  std::vector<uint8_t> noise = from.ConsumeBytes<uint8_t>(sizeof(Params) + from.ConsumeIntegral<uint8_t>());
  if (noise.size() > block.size()) noise.resize(block.size());
  std::copy(noise.begin(), noise.end(), block.begin());
  std::memcpy(block.data(), &size, sizeof(size));
  // No longer than it says it is: reading past its end is caught.
  const size_t said = size < 8 ? 8 : size > block.size() ? block.size() : size;
  std::vector<uint8_t> exact(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(said));
  const int32_t status = can_use(nullptr, reinterpret_cast<const Params*>(exact.data()));
  require_reason(status);
  ++tally.noise;
  if (size < 8 || size > 4096) require(status == BITEXACT_STATUS_STRUCT_SIZE, "a wrong size was taken");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Provider from(data, size);
  switch (from.ConsumeIntegral<uint8_t>() % 8) {
    case 0: call_with_noise<bitexact_silu_mul_params>(from); break;
    case 1: call_with_noise<bitexact_rope_params>(from); break;
    case 2:
    case 3:
    case 4: call_once(from, bitexact_silu_mul_params BITEXACT_SILU_MUL_PARAMS_INIT); break;
    default: call_once(from, bitexact_rope_params BITEXACT_ROPE_PARAMS_INIT); break;
  }
  return 0;
}
