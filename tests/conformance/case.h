// One case of cases.json as bytes and a struct. The other runners do the same, each in its language:
//  - the memory starts as bytes of splitmix64 from `seed`, eight at a time, little-endian; then `write` lays
//    hexadecimal bytes over it at offsets;
//  - `params` names fields of the header's struct, all others are zero but struct_size; `pointers` gives pointer
//    fields as offsets into the memory, `addresses` as plain numbers that nobody may touch; others are null;
//  - `status` is the answer of can_use without a context and of the call; `check` that of can_use where it
//    differs; `cuda` that of the call on a CUDA device where it differs;
//  - after a call that is served, the FNV-1a hash of the whole memory is `digest`, the bytes at a pointer are
//    `bits` or start with `first`, and `position_errors` were counted; after any other, no byte has changed.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "bitexact.h"

namespace conformance {

using Json = nlohmann::json;

inline Json load(const char* path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  return Json::parse(file);
}

inline std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

inline uint64_t digest(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

inline std::vector<uint8_t> memory_of(const Json& c) {
  std::vector<uint8_t> bytes(c.at("bytes").get<size_t>());
  uint64_t state = c.at("seed");
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    std::memcpy(&bytes[i], &z, 8);
  }
  for (const Json& write : c.at("write")) {
    const auto data = from_hex(write.at(1));
    std::memcpy(&bytes.at(write.at(0).get<size_t>() + data.size() - 1) - (data.size() - 1), data.data(),
                data.size());
  }
  return bytes;
}

// Calls visit(name, field) for every field behind struct_size.
template <class Visit>
void fields(bitexact_silu_mul_params& p, Visit&& visit) {
#define FIELD(name) visit(#name, p.name)
  FIELD(flags), FIELD(dtype), FIELD(compute_dtype), FIELD(silu), FIELD(reserved), FIELD(batches), FIELD(rows);
  FIELD(cols), FIELD(gate), FIELD(gate_batch_stride), FIELD(gate_row_stride), FIELD(up),
      FIELD(up_batch_stride);
  FIELD(up_row_stride), FIELD(out), FIELD(out_batch_stride), FIELD(out_row_stride), FIELD(clamp);
  FIELD(limit_bits);
}
template <class Visit>
void fields(bitexact_rope_params& p, Visit&& visit) {
  FIELD(flags), FIELD(dtype), FIELD(table_dtype), FIELD(compute_dtype), FIELD(combine), FIELD(pairing_in);
  FIELD(pairing_out), FIELD(batches), FIELD(tokens), FIELD(q_heads), FIELD(k_heads), FIELD(head_dim);
  FIELD(rotary_dim), FIELD(table_width), FIELD(table_rows), FIELD(q_in), FIELD(q_in_batch_stride);
  FIELD(q_in_token_stride), FIELD(q_in_head_stride), FIELD(q_out), FIELD(q_out_batch_stride);
  FIELD(q_out_token_stride), FIELD(q_out_head_stride), FIELD(k_in), FIELD(k_in_batch_stride);
  FIELD(k_in_token_stride), FIELD(k_in_head_stride), FIELD(k_out), FIELD(k_out_batch_stride);
  FIELD(k_out_token_stride), FIELD(k_out_head_stride), FIELD(cos), FIELD(cos_batch_stride);
  FIELD(cos_token_stride), FIELD(cos_head_stride), FIELD(cos_element_stride), FIELD(sin);
  FIELD(sin_batch_stride), FIELD(sin_token_stride), FIELD(sin_head_stride), FIELD(sin_element_stride);
  FIELD(positions), FIELD(positions_batch_stride), FIELD(positions_token_stride), FIELD(positions_dtype);
  FIELD(reserved);
#undef FIELD
}

// The struct, its pointers into `memory`.
template <class Params>
Params params_of(const Json& c, Params p, uint8_t* memory) {
  size_t used = 0;
  auto number = [&](const char* key, const char* name, auto& to) {
    if (!c.contains(key) || !c.at(key).contains(name)) return false;
    to = c.at(key).at(name).get<std::decay_t<decltype(to)>>();
    ++used;
    return true;
  };
  fields(p, [&](const char* name, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_pointer<Field>::value) {
      uint64_t value = 0;
      if (number("pointers", name, value)) field = memory + value;
      if (number("addresses", name, value)) field = reinterpret_cast<Field>(value);
    } else {
      number("params", name, field);
    }
  });
  size_t named = 0;
  for (const char* key : {"params", "pointers", "addresses"}) named += c.contains(key) ? c.at(key).size() : 0;
  if (used != named) throw std::runtime_error("a field that the struct does not have");
  if (c.contains("struct_size")) p.struct_size = c.at("struct_size");
  return p;
}

inline bool is_rope(const Json& c) {
  const std::string operation = c.at("operation");
  if (operation != "rope" && operation != "silu_mul") throw std::runtime_error("operation " + operation);
  return operation == "rope";
}

}  // namespace conformance
