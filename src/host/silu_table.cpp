#include "silu_table.h"

#include "reference.h"
#include "sha256.h"

namespace bitexact {
namespace {

// SHA-256 of the table as 65,536 little-endian uint16, captured from PyTorch eager on an H200: see
// tests/golden/data/index.json.
const char* expected_digest(Dtype dtype, Silu silu) {
  const bool b = dtype == Dtype::bfloat16;
  switch (silu) {
    case Silu::sigmoid:
      return b ? "6fbfdd2923d0a0f3132a7f3fe87f768c36650884871e35f0dbb3ba9a246a2058"
               : "65b232e893e42b98692f019d2ac50b392f6c0dfc98683036d42f636babf7593c";
    case Silu::candle:
      return b ? "d0a6d503fdc7228e7c1846cb1ea538262088fd9437d6045ac9bdadb35498716b"
               : "926b8c717f280bd3cd78cb72cefd86625e14d7c33c132116a25679b68122273d";
    case Silu::glu:
      return b ? "32923b94eca938cd0f966f39efb5fcbda40f2c2bb748cdd90bfd3ddeff9e8f97"
               : "f6d68a4650063c998eacb727d8ef7f7ca5d746dc6f1aa1956e2ae0b4f0f25311";
    default:
      return b ? "5f48cf06e46dc6cfd0977367a6a09d01eb4794c3b6c1fcd9338f52a8859ab5e2"
               : "589977e32de09fe30ef836ffcfe55831b0f26fe46efaf8ec6c4e57d7b0d247c8";
  }
}

// Never freed: the tables serve until the process ends.
const SiluTable* build(Dtype dtype, Silu silu) {
  auto* table = new SiluTable;
  SiluMulArgs a{};
  a.dtype = dtype;
  a.silu = silu;
  const uint64_t one = reference::round_bits(1.0f, dtype);
  for (uint64_t gate = 0; gate < 65536; ++gate) {
    table->at[gate] = static_cast<uint16_t>(reference::silu_mul(gate, one, a));
  }
  table->proven = sha256(table->at, sizeof(table->at)) == expected_digest(dtype, silu);
  return table;
}

template <Dtype D, Silu S>
const SiluTable& table_of() {
  static const SiluTable* const table = build(D, S);
  return *table;
}

template <Dtype D>
const SiluTable& table_of(Silu silu) {
  switch (silu) {
    case Silu::sigmoid: return table_of<D, Silu::sigmoid>();
    case Silu::candle: return table_of<D, Silu::candle>();
    case Silu::glu: return table_of<D, Silu::glu>();
    default: return table_of<D, Silu::aten>();
  }
}

}  // namespace

const SiluTable& silu_table(Dtype dtype, Silu silu) {
  return dtype == Dtype::bfloat16 ? table_of<Dtype::bfloat16>(silu) : table_of<Dtype::float16>(silu);
}

}  // namespace bitexact
