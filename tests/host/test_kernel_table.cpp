#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernel_table.h"
#include "probe.h"

using namespace bitexact;

namespace {

TEST(KernelTable, NumbersAndPropertiesAreInverse) {
  for (int k = 0; k < kernel_count; ++k) {
    if (is_rope(k)) {
      EXPECT_EQ(kernel_of(rope_kernel(k).args, rope_kernel(k).variant), k) << kernel_name(k);
    } else {
      EXPECT_EQ(kernel_of(silu_mul_kernel(k).args, silu_mul_kernel(k).variant), k) << kernel_name(k);
    }
  }
}

TEST(KernelTable, NamesAreUnique) {
  std::set<std::string> names;
  for (int k = 0; k < kernel_count; ++k) names.insert(kernel_name(k));
  EXPECT_EQ(names.size(), static_cast<size_t>(kernel_count));
}

// What the self-check would run for a kernel is that very kernel: its probe meets the demands of the
// variant, so forcing the variant on it is sound.
TEST(KernelTable, EveryProbeFitsItsKernel) {
  void* const aligned = reinterpret_cast<void*>(uintptr_t{1} << 20);
  for (int k = 0; k < kernel_count; ++k) {
    if (is_rope(k)) {
      const RopeKernel kernel = rope_kernel(k);
      const auto probe = make_probe(kernel.args);
      for (const RopeArgs& a : probe.cases) {
        const RopeArgs call = redirected(located(a, aligned), aligned);
        EXPECT_EQ(kernel_of(call, kernel.variant), k);
        if (kernel.variant == RopeVariant::vec16) {
          EXPECT_EQ(choose_variant(call), RopeVariant::vec16) << kernel_name(k);
        }
      }
    } else {
      const SiluMulKernel kernel = silu_mul_kernel(k);
      const auto probe = make_probe(kernel.args);
      for (const SiluMulArgs& a : probe.cases) {
        const SiluMulArgs call = redirected(located(a, aligned), aligned);
        EXPECT_EQ(kernel_of(call, kernel.variant), k);
        EXPECT_EQ(choose_variant(call), SiluMulVariant::vec16) << kernel_name(k);
      }
    }
  }
}

struct VariantCase {
  int64_t address, row;
  SiluMulVariant variant;
};

TEST(Dispatch, SiluMulVariantFollowsRealAlignment) {
  for (const VariantCase& c : {VariantCase{256, 64, SiluMulVariant::vec16},
                               {264, 64, SiluMulVariant::vec8},
                               {256, 68, SiluMulVariant::vec8},
                               {258, 64, SiluMulVariant::scalar},
                               {256, 65, SiluMulVariant::scalar}}) {
    SiluMulArgs a{};
    a.dtype = Dtype::bfloat16;
    a.batches = 1;
    a.rows = 4;
    a.cols = 64;
    a.gate = a.up = a.out = {reinterpret_cast<void*>(c.address), 0, c.row};
    EXPECT_EQ(choose_variant(a), c.variant) << c.address << " " << c.row;
    for (Rows SiluMulArgs::*one :
         {&SiluMulArgs::gate, &SiluMulArgs::up, &SiluMulArgs::out}) {  // each pointer counts
      SiluMulArgs b = a;
      b.gate = b.up = b.out = {reinterpret_cast<void*>(int64_t{256}), 0, 64};
      b.*one = {reinterpret_cast<void*>(c.address), 0, c.row};
      EXPECT_EQ(choose_variant(b), c.variant);
    }
    a.rows = 1;  // then row strides do not matter
    a.gate.row = a.up.row = a.out.row = 65;
    if (c.address == 256) {
      EXPECT_EQ(choose_variant(a), SiluMulVariant::vec16);
    }
  }
}

TEST(Dispatch, RopeVariantFollowsRotaryWidthAndAlignment) {
  struct Case {
    int64_t head_dim, rotary_dim, head_stride, address;
    Pairing in, out;
    RopeVariant variant;
  };
  const Pairing h = Pairing::half, i = Pairing::interleaved;
  const RopeVariant v = RopeVariant::vec16, s = RopeVariant::scalar;
  for (const Case& c :
       {Case{128, 128, 128, 256, h, h, v}, Case{128, 64, 128, 256, h, h, v}, Case{80, 80, 80, 256, h, h, v},
        Case{100, 100, 100, 256, h, h, s}, Case{96, 24, 96, 256, h, h, s}, Case{96, 24, 96, 256, i, i, v},
        Case{128, 128, 128, 258, h, h, s}, Case{128, 128, 132, 256, h, h, s}, Case{64, 64, 64, 256, i, h, v},
        Case{64, 64, 64, 256, h, i, s}}) {
    RopeArgs a{};
    a.dtype = Dtype::bfloat16;
    a.batches = a.tokens = 1;
    a.heads[0] = 2;
    a.head_dim = c.head_dim;
    a.rotary_dim = c.rotary_dim;
    a.pairing_in = c.in;
    a.pairing_out = c.out;
    a.in[0] = a.out[0] = {reinterpret_cast<void*>(c.address), 0, 0, c.head_stride};
    EXPECT_EQ(choose_variant(a), c.variant) << c.head_dim << "/" << c.rotary_dim;
  }
}

}  // namespace
