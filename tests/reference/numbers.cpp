#include "numbers.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include "reference.h"

#ifdef __FAST_MATH__
#error "the reference needs IEEE arithmetic: build it without fast-math"
#endif
static_assert(FLT_EVAL_METHOD == 0, "float operations must round to float");

namespace bitexact_reference {
namespace {

// A binary format: 1 sign bit, the exponent bits, the mantissa bits.
struct Format {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  // A subnormal is a multiple of 2^lowest_exponent.
  int lowest_exponent() const { return 1 - bias() - mantissa_bits; }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t sign() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
};

constexpr Format format_bfloat16{8, 7}, format_float16{5, 10}, format_float32{8, 23}, format_float64{11, 52};

template <class To, class From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Number of binary digits of m.
int width(uint64_t m) {
  int digits = 0;
  for (; m != 0; m >>= 1) ++digits;
  return digits;
}

// The bits of `value` rounded once to the format: integers only, so that no floating-point mode matters.
uint64_t encode(const Format& format, double value) {
  const uint64_t bits = bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & ~format_float64.sign();
  const uint64_t sign = (bits & format_float64.sign()) != 0 ? format.sign() : 0;
  if (magnitude > format_float64.infinity()) return format.sign() - 1;  // the one NaN: all ones, no sign
  if (magnitude == format_float64.infinity()) return sign | format.infinity();
  // |value| == m * 2^e
  const int exponent_field = static_cast<int>(magnitude >> format_float64.mantissa_bits);
  uint64_t m = magnitude & ((uint64_t{1} << format_float64.mantissa_bits) - 1);
  int e = format_float64.lowest_exponent();
  if (exponent_field != 0) {
    m |= uint64_t{1} << format_float64.mantissa_bits;
    e += exponent_field - 1;
  }
  if (m == 0) return sign;
  // The result is n * 2^unit: as many digits as the format has, or fewer when it is subnormal.
  int unit = e + width(m) - 1 - format.mantissa_bits;
  if (unit < format.lowest_exponent()) unit = format.lowest_exponent();
  const int dropped = unit - e;
  uint64_t n;
  if (dropped <= 0) {
    n = m << -dropped;
  } else if (dropped > 60) {
    n = 0;  // below a quarter of the smallest subnormal
  } else {
    const uint64_t rest = m & ((uint64_t{1} << dropped) - 1), half = uint64_t{1} << (dropped - 1);
    n = m >> dropped;
    if (rest > half || (rest == half && (n & 1) != 0)) ++n;
  }
  // n carries the leading one, which adds the missing 1 to the exponent field; so does a carry out of n.
  const uint64_t field = static_cast<uint64_t>(unit - format.lowest_exponent());
  const uint64_t result = (field << format.mantissa_bits) + n;
  return sign | (result < format.infinity() ? result : format.infinity());
}

// The value that the bits of a 16-bit format stand for.
double decode(const Format& format, uint64_t bits) {
  const double sign = (bits & format.sign()) != 0 ? -1.0 : 1.0;
  const uint64_t magnitude = bits & (format.sign() - 1);
  if (magnitude > format.infinity()) return std::nan("");
  if (magnitude == format.infinity()) return sign * HUGE_VAL;
  const int exponent_field = static_cast<int>(magnitude >> format.mantissa_bits);
  uint64_t m = magnitude & ((uint64_t{1} << format.mantissa_bits) - 1);
  int e = format.lowest_exponent();
  if (exponent_field != 0) {
    m |= uint64_t{1} << format.mantissa_bits;
    e += exponent_field - 1;
  }
  return sign * std::ldexp(static_cast<double>(m), e);
}

bool is_16_bit(int32_t dtype) { return dtype == BITEXACT_DTYPE_FLOAT16 || dtype == BITEXACT_DTYPE_BFLOAT16; }

int64_t size_of(int32_t dtype) {
  if (is_16_bit(dtype)) return 2;
  return dtype == BITEXACT_DTYPE_FLOAT32 ? 4 : 8;
}

template <class T>
T read(const void* tensor, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(tensor) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void write(void* tensor, int64_t index, T value) {
  std::memcpy(static_cast<char*>(tensor) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

// A float is a double, exactly, so one rounding from double serves both.
uint16_t to_bfloat16(float value) { return static_cast<uint16_t>(encode(format_bfloat16, value)); }
uint16_t to_float16(float value) { return static_cast<uint16_t>(encode(format_float16, value)); }
float to_float32(double value) {
  return bit_cast<float>(static_cast<uint32_t>(encode(format_float32, value)));
}
float from_bfloat16(uint16_t bits) { return static_cast<float>(decode(format_bfloat16, bits)); }
float from_float16(uint16_t bits) { return static_cast<float>(decode(format_float16, bits)); }

double load(int32_t dtype, const void* tensor, int64_t index) {
  switch (dtype) {
    case BITEXACT_DTYPE_BFLOAT16: return from_bfloat16(read<uint16_t>(tensor, index));
    case BITEXACT_DTYPE_FLOAT16: return from_float16(read<uint16_t>(tensor, index));
    case BITEXACT_DTYPE_FLOAT32: return read<float>(tensor, index);
    default: return read<double>(tensor, index);
  }
}

void store(int32_t dtype, void* tensor, int64_t index, double value) {
  const float single = to_float32(value);
  switch (dtype) {
    case BITEXACT_DTYPE_BFLOAT16: return write(tensor, index, to_bfloat16(single));
    case BITEXACT_DTYPE_FLOAT16: return write(tensor, index, to_float16(single));
    default: return write(tensor, index, bit_cast<uint32_t>(single));
  }
}

void copy(int32_t dtype, const void* from, int64_t from_index, void* to, int64_t to_index) {
  const int64_t size = size_of(dtype);
  std::memmove(static_cast<char*>(to) + to_index * size, static_cast<const char*>(from) + from_index * size,
               static_cast<size_t>(size));
}

double rounded(int32_t dtype, double value) {
  switch (dtype) {
    case BITEXACT_DTYPE_BFLOAT16: return from_bfloat16(to_bfloat16(to_float32(value)));
    case BITEXACT_DTYPE_FLOAT16: return from_float16(to_float16(to_float32(value)));
    case BITEXACT_DTYPE_FLOAT32: return to_float32(value);
    default: return value;
  }
}

// Here and below a volatile result is one that the compiler must round and cannot fuse, whatever its flags.
float multiply32(float a, float b) {
  const volatile float result = a * b;
  return result;
}

float add32(float a, float b) {
  const volatile float result = a + b;
  return result;
}

float divide32(float a, float b) {
  const volatile float result = a / b;
  return result;
}

double multiply(int32_t dtype, double a, double b) {
  if (dtype == BITEXACT_DTYPE_FLOAT64) {
    const volatile double result = a * b;
    return result;
  }
  return rounded(dtype, multiply32(static_cast<float>(a), static_cast<float>(b)));
}

double add(int32_t dtype, double a, double b, bool from_zero) {
  if (dtype == BITEXACT_DTYPE_FLOAT64) {
    const volatile double sum = a + b;
    const volatile double result = from_zero ? sum + 0.0 : sum;
    return result;
  }
  const float sum = add32(static_cast<float>(a), static_cast<float>(b));
  return rounded(dtype, from_zero ? add32(sum, 0.0f) : sum);
}

double multiply_add(int32_t dtype, double a, double b, double c, bool from_zero) {
  if (dtype == BITEXACT_DTYPE_FLOAT64) {
    const volatile double sum = std::fma(a, b, c);
    const volatile double result = from_zero ? sum + 0.0 : sum;
    return result;
  }
  const volatile float sum = std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
  return rounded(dtype, from_zero ? add32(sum, 0.0f) : sum);
}

}  // namespace bitexact_reference
