#include "kernel_table.h"

#include <string>
#include <vector>

namespace bitexact {
namespace {

// ------------------------------------------------------------------------------------ rope --

struct Dtypes {
  Dtype x, table, compute;
};

// A 16-bit x has six: its own tables in three compute dtypes, float32 ones in two, float64 ones in one.
constexpr Dtype f32 = Dtype::float32, f64 = Dtype::float64, f16 = Dtype::float16, b16 = Dtype::bfloat16;
constexpr Dtypes rope_dtypes[15] = {
    {b16, b16, b16}, {b16, b16, f32}, {b16, b16, f64}, {b16, f32, f32}, {b16, f32, f64},
    {b16, f64, f64}, {f16, f16, f16}, {f16, f16, f32}, {f16, f16, f64}, {f16, f32, f32},
    {f16, f32, f64}, {f16, f64, f64}, {f32, f32, f32}, {f32, f32, f64}, {f32, f64, f64},
};

int dtypes_index(const RopeArgs& a) {
  const bool own = a.table_dtype == a.dtype;
  if (a.dtype == f32) return 12 + (a.table_dtype == f64 ? 2 : a.compute_dtype == f64 ? 1 : 0);
  const int first = a.dtype == b16 ? 0 : 6;
  if (own) return first + (a.compute_dtype == f64 ? 2 : a.compute_dtype == f32 ? 1 : 0);
  return first + 3 + (a.table_dtype == f64 ? 2 : a.compute_dtype == f64 ? 1 : 0);
}

struct Numerics {
  Combine combine;
  bool sum_from_zero;
  const char* name;
};
constexpr Numerics rope_numerics[6] = {
    {Combine::separate, false, "separate"},       {Combine::separate, true, "separate+0"},
    {Combine::complex, false, "complex"},         {Combine::complex_alt, false, "complex_alt"},
    {Combine::addcmul_cos, false, "addcmul_cos"}, {Combine::addcmul_x1, false, "addcmul_x1"},
};

int numerics_index(const RopeArgs& a) {
  if (a.combine == Combine::separate) return a.sum_from_zero ? 1 : 0;
  return static_cast<int>(a.combine) + 1;
}

struct Form {
  Pairing in, out;
  RopeVariant variant;
  const char* name;
};
constexpr Form rope_forms[12] = {
    {Pairing::half, Pairing::half, RopeVariant::scalar, "half scalar"},
    {Pairing::half, Pairing::half, RopeVariant::vec16, "half vec16"},
    {Pairing::interleaved, Pairing::interleaved, RopeVariant::scalar, "interleaved scalar"},
    {Pairing::interleaved, Pairing::interleaved, RopeVariant::vec16, "interleaved vec16"},
    {Pairing::interleaved, Pairing::half, RopeVariant::scalar, "interleaved->half scalar"},
    {Pairing::interleaved, Pairing::half, RopeVariant::vec16, "interleaved->half vec16"},
    {Pairing::half, Pairing::interleaved, RopeVariant::scalar, "half->interleaved scalar"},
    {Pairing::half, Pairing::half, RopeVariant::vec16_table, "half vec16_table"},
    {Pairing::interleaved, Pairing::interleaved, RopeVariant::vec16_table, "interleaved vec16_table"},
    {Pairing::interleaved, Pairing::half, RopeVariant::vec16_table, "interleaved->half vec16_table"},
    {Pairing::half, Pairing::half, RopeVariant::vec8_table, "half vec8_table"},
    {Pairing::half, Pairing::half, RopeVariant::vec16_lanes, "half vec16_lanes"},
};

// half, interleaved, interleaved to half, half to interleaved: as the forms above have them.
int pairings_index(Pairing in, Pairing out) {
  if (in == Pairing::half) return out == Pairing::half ? 0 : 3;
  return out == Pairing::half ? 2 : 1;
}

int form_index(const RopeArgs& a, RopeVariant variant) {
  const int pairings = pairings_index(a.pairing_in, a.pairing_out);
  switch (variant) {
    case RopeVariant::vec8_table: return 10;
    case RopeVariant::vec16_lanes: return 11;
    case RopeVariant::vec16_table: return 7 + pairings;
    default: break;
  }
  return 2 * pairings + (variant == RopeVariant::vec16 ? 1 : 0);
}

// Kernels are numbered without gaps, though not every combination exists.
constexpr int forms = 12, combinations = 15 * 6 * forms;

struct RopeParts {
  const Dtypes& dtypes;
  const Numerics& numerics;
  const Form& form;
};
constexpr RopeParts parts_at(int combination) {
  return {rope_dtypes[combination / (6 * forms)], rope_numerics[combination / forms % 6],
          rope_forms[combination % forms]};
}

constexpr bool exists(int combination) {
  const auto [d, n, f] = parts_at(combination);
  if (f.variant == RopeVariant::scalar || f.variant == RopeVariant::vec16) return true;
  if (d.compute == f64 || n.sum_from_zero) return false;
  return f.variant != RopeVariant::vec8_table || (d.table == d.x && d.x != f32);
}

struct Numbering {
  int kernel[combinations] = {}, combination[rope_kernel_count] = {};
  constexpr Numbering() {
    int count = 0;
    for (int i = 0; i < combinations; ++i) {
      kernel[i] = count;
      if (exists(i)) combination[count++] = i;
    }
  }
};
constexpr Numbering numbering;
static_assert(numbering.kernel[combinations - 1] + (exists(combinations - 1) ? 1 : 0) == rope_kernel_count,
              "rope_kernel_count counts what exists");

RopeParts parts_of(int kernel) { return parts_at(numbering.combination[kernel]); }

// -------------------------------------------------------------------------------- silu_mul --

struct SiluForm {
  Dtype x;
  Silu silu;
  bool compute_float32;
  Clamp clamp;
  const char* name;
};
constexpr bool two_roundings = false, one_rounding = true;
constexpr SiluForm silu_forms[silu_mul_form_count] = {
    {b16, Silu::aten, two_roundings, Clamp::none, "aten"},
    {b16, Silu::sigmoid, two_roundings, Clamp::none, "sigmoid"},
    {b16, Silu::candle, two_roundings, Clamp::none, "candle"},
    {b16, Silu::glu, two_roundings, Clamp::none, "glu"},
    {b16, Silu::aten, two_roundings, Clamp::before, "aten clamp=before"},
    {b16, Silu::aten, two_roundings, Clamp::after, "aten clamp=after"},
    {b16, Silu::aten, one_rounding, Clamp::none, "aten compute=float32"},
    {b16, Silu::aten, one_rounding, Clamp::before, "aten compute=float32 clamp=before"},
    {b16, Silu::glu, one_rounding, Clamp::none, "glu compute=float32"},
    {f16, Silu::aten, two_roundings, Clamp::none, "aten"},
    {f16, Silu::sigmoid, two_roundings, Clamp::none, "sigmoid"},
    {f16, Silu::candle, two_roundings, Clamp::none, "candle"},
    {f16, Silu::glu, two_roundings, Clamp::none, "glu"},
    {f16, Silu::aten, two_roundings, Clamp::before, "aten clamp=before"},
    {f16, Silu::aten, two_roundings, Clamp::after, "aten clamp=after"},
    {f16, Silu::aten, one_rounding, Clamp::none, "aten compute=float32"},
    {f16, Silu::aten, one_rounding, Clamp::before, "aten compute=float32 clamp=before"},
    {f16, Silu::glu, one_rounding, Clamp::none, "glu compute=float32"},
    {f32, Silu::aten, two_roundings, Clamp::none, "aten"},
    {f32, Silu::sigmoid, two_roundings, Clamp::none, "sigmoid"},
    {f32, Silu::glu, two_roundings, Clamp::none, "glu"},
    {f32, Silu::aten, two_roundings, Clamp::before, "aten clamp=before"},
    {f32, Silu::aten, two_roundings, Clamp::after, "aten clamp=after"},
};

int silu_form_index(const SiluMulArgs& a) {
  const int silu = static_cast<int>(a.silu), clamp = static_cast<int>(a.clamp);
  if (a.dtype == f32) return 18 + (clamp != 0 ? 2 + clamp : a.silu == Silu::glu ? 2 : silu);
  const int first = a.dtype == b16 ? 0 : 9;
  if (a.compute_float32) return first + (a.silu == Silu::glu ? 8 : 6 + clamp);
  return first + (clamp != 0 ? 3 + clamp : silu);
}

// Kernels of SiLU-mul: each form in three variants, then each that has them in three fast ones.
struct SiluParts {
  int form;
  SiluMulVariant variant;
};
SiluParts silu_parts_of(int kernel) {
  const int k = kernel - rope_kernel_count, row = k / silu_mul_widths;
  const auto variant = static_cast<SiluMulVariant>(k % silu_mul_widths);
  if (row < silu_mul_form_count) return {row, variant};
  return {row - silu_mul_form_count, with_fast(variant)};
}
int silu_kernel_at(const SiluParts& p) {
  const int row = p.form + (is_fast(p.variant) ? silu_mul_form_count : 0);
  return rope_kernel_count + row * silu_mul_widths + static_cast<int>(without_fast(p.variant));
}

const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::bfloat16: return "bfloat16";
    case Dtype::float16: return "float16";
    case Dtype::float32: return "float32";
    default: return "float64";
  }
}

std::string name_of(int kernel) {
  static const char* const silu_variants[] = {"scalar",      "vec8",      "vec16",
                                              "scalar_fast", "vec8_fast", "vec16_fast"};
  if (is_rope(kernel)) {
    const auto [d, n, f] = parts_of(kernel);
    return std::string("fused_rope ") + dtype_name(d.x) + " table=" + dtype_name(d.table) +
           " compute=" + dtype_name(d.compute) + " " + n.name + " " + f.name;
  }
  const auto [form, variant] = silu_parts_of(kernel);
  return std::string("fused_silu_mul ") + dtype_name(silu_forms[form].x) + " " + silu_forms[form].name + " " +
         silu_variants[static_cast<int>(variant)];
}

}  // namespace

int kernel_of(const RopeArgs& a, RopeVariant variant) {
  return numbering.kernel[(dtypes_index(a) * 6 + numerics_index(a)) * forms + form_index(a, variant)];
}

int kernel_of(const SiluMulArgs& a, SiluMulVariant variant) {
  return silu_kernel_at({silu_form_index(a), variant});
}

RopeKernel rope_kernel(int kernel) {
  const auto [d, n, f] = parts_of(kernel);
  RopeKernel k{};
  k.args.dtype = d.x;
  k.args.table_dtype = d.table;
  k.args.compute_dtype = d.compute;
  k.args.combine = n.combine;
  k.args.sum_from_zero = n.sum_from_zero;
  k.args.pairing_in = f.in;
  k.args.pairing_out = f.out;
  k.variant = f.variant;
  return k;
}

SiluMulKernel silu_mul_kernel(int kernel) {
  const auto [form, variant] = silu_parts_of(kernel);
  const SiluForm& f = silu_forms[form];
  SiluMulKernel k{};
  k.args.dtype = f.x;
  k.args.silu = f.silu;
  k.args.compute_float32 = f.compute_float32;
  k.args.clamp = f.clamp;
  k.variant = variant;
  return k;
}

int successor_of(int kernel) {
  if (is_rope(kernel)) return kernel;
  const auto [form, variant] = silu_parts_of(kernel);
  return silu_kernel_at({form, without_fast(variant)});
}

int probe_of(int kernel) {
  if (!is_rope(kernel)) return 15 * 6 * 4 + silu_parts_of(kernel).form;
  const Form& form = parts_of(kernel).form;
  return numbering.combination[kernel] / forms * 4 + pairings_index(form.in, form.out);
}

const char* kernel_name(int kernel) {
  // Never freed: reports point into it until the process ends.
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (int k = 0; k < kernel_count; ++k) all->push_back(name_of(k));
    return all;
  }();
  return (*names)[static_cast<size_t>(kernel)].c_str();
}

}  // namespace bitexact
