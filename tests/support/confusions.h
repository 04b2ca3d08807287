// Kernels that compute another numerics than the call names: right for somebody, wrong here.
#pragma once

#include <string>
#include <vector>

#include "args.h"
#include "bitexact.h"

namespace bitexact_test {

template <class Args>
struct Confusion {
  std::string name;
  Args named, run;  // dtypes and numerics alone
};

// Sets the numerics of `to` as `from` has them.
inline void take_numerics(bitexact::SiluMulArgs& to, const bitexact::SiluMulArgs& from) {
  to.silu = from.silu;
  to.compute_float32 = from.compute_float32;
  to.clamp = from.clamp;
}
inline void take_numerics(bitexact::RopeArgs& to, const bitexact::RopeArgs& from) {
  to.compute_dtype = from.compute_dtype;
  to.combine = from.combine;
  to.sum_from_zero = from.sum_from_zero;
}

inline std::vector<Confusion<bitexact::SiluMulArgs>> silu_mul_confusions(bool with_float32) {
  using namespace bitexact;
  struct Form {
    const char* name;
    Silu silu;
    bool compute_float32;
    Clamp clamp;
  };
  std::vector<Form> forms = {
      {"aten", Silu::aten, false, Clamp::none},     {"sigmoid", Silu::sigmoid, false, Clamp::none},
      {"candle", Silu::candle, false, Clamp::none}, {"glu", Silu::glu, false, Clamp::none},
      {"before", Silu::aten, false, Clamp::before}, {"after", Silu::aten, false, Clamp::after}};
  if (with_float32) {
    forms.push_back({"aten_float32", Silu::aten, true, Clamp::none});
    forms.push_back({"glu_float32", Silu::glu, true, Clamp::none});
    forms.push_back({"before_float32", Silu::aten, true, Clamp::before});
  }
  auto args = [](Dtype dtype, const Form& form) {
    SiluMulArgs a{};
    a.dtype = dtype;
    a.silu = form.silu;
    a.compute_float32 = form.compute_float32;
    a.clamp = form.clamp;
    a.limit = form.clamp == Clamp::none ? 0.0f : 10.0f;
    return a;
  };
  std::vector<Confusion<SiluMulArgs>> all;
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    for (const Form& named : forms) {
      for (const Form& run : forms) {
        if (named.name == run.name) continue;
        all.push_back({std::string(named.name) + " as " + run.name, args(dtype, named), args(dtype, run)});
      }
    }
  }
  return all;
}

inline std::vector<Confusion<bitexact::RopeArgs>> rope_confusions() {
  using namespace bitexact;
  const Dtype f64 = Dtype::float64, f32 = Dtype::float32, f16 = Dtype::float16, b16 = Dtype::bfloat16;
  struct Kind {
    Dtype dtype, table, compute;
  };
  struct Form {
    const char* name;
    Combine combine;
    bool sum_from_zero;
  };
  const Form forms[] = {
      {"separate", Combine::separate, false},       {"separate+0", Combine::separate, true},
      {"complex", Combine::complex, false},         {"complex_alt", Combine::complex_alt, false},
      {"addcmul_cos", Combine::addcmul_cos, false}, {"addcmul_x1", Combine::addcmul_x1, false}};
  auto args = [](const Kind& kind, const Form& form) {
    RopeArgs a{};
    a.dtype = kind.dtype;
    a.table_dtype = kind.table;
    a.compute_dtype = kind.compute;
    a.combine = form.combine;
    a.sum_from_zero = form.sum_from_zero;
    return a;
  };
  std::vector<Confusion<RopeArgs>> all;
  for (const Kind& kind : {Kind{b16, b16, b16},
                           {b16, f32, f32},
                           {b16, f64, f64},
                           {f16, f16, f16},
                           {f16, f32, f32},
                           {f32, f32, f32}}) {
    for (const Form& named : forms) {
      for (const Form& run : forms) {
        if (named.name == run.name) continue;
        all.push_back({std::string(named.name) + " as " + run.name, args(kind, named), args(kind, run)});
      }
    }
  }
  // One compute dtype for another.
  struct Computes {
    Kind named;
    Dtype run;
  };
  for (const Computes& c : {Computes{{b16, b16, b16}, f32},
                            {{b16, b16, f32}, b16},
                            {{b16, f32, f32}, f64},
                            {{b16, f32, f64}, f32},
                            {{f16, f32, f32}, f64},
                            {{f32, f32, f32}, f64},
                            {{f32, f32, f64}, f32}}) {
    for (const Form& form : {forms[0], forms[2], forms[4]}) {
      const Kind run{c.named.dtype, c.named.table, c.run};
      all.push_back({std::string(form.name) + " in another dtype", args(c.named, form), args(run, form)});
    }
  }
  return all;
}

}  // namespace bitexact_test
