#include "golden.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "generate.h"

namespace bitexact_golden {
namespace {

using nlohmann::json;

constexpr uint8_t mark = 0xa5;  // fills outputs before the call

// ----------------------------------------------------------------------- names to members --

template <class P>
struct Members {
  std::map<std::string, uint32_t P::*> flags;
  std::map<std::string, int32_t P::*> constants;
  std::map<std::string, int64_t P::*> sizes;
  std::map<std::string, const void * P::*> inputs;
  std::map<std::string, void * P::*> outputs;
};

#define MEMBER(name) \
  { #name, &P::name }

const Members<bitexact_silu_mul_params>& silu_mul_members() {
  using P = bitexact_silu_mul_params;
  static const Members<P> members = {
      {MEMBER(flags), MEMBER(limit_bits)},
      {MEMBER(dtype), MEMBER(compute_dtype), MEMBER(silu), MEMBER(clamp)},
      {MEMBER(batches), MEMBER(rows), MEMBER(cols), MEMBER(gate_batch_stride), MEMBER(gate_row_stride),
       MEMBER(up_batch_stride), MEMBER(up_row_stride), MEMBER(out_batch_stride), MEMBER(out_row_stride)},
      {MEMBER(gate), MEMBER(up)},
      {MEMBER(out)}};
  return members;
}

const Members<bitexact_rope_params>& rope_members() {
  using P = bitexact_rope_params;
  static const Members<P> members = {
      {MEMBER(flags)},
      {MEMBER(dtype), MEMBER(table_dtype), MEMBER(compute_dtype), MEMBER(combine), MEMBER(pairing_in),
       MEMBER(pairing_out), MEMBER(positions_dtype)},
      {MEMBER(batches),
       MEMBER(tokens),
       MEMBER(q_heads),
       MEMBER(k_heads),
       MEMBER(head_dim),
       MEMBER(rotary_dim),
       MEMBER(table_width),
       MEMBER(table_rows),
       MEMBER(q_in_batch_stride),
       MEMBER(q_in_token_stride),
       MEMBER(q_in_head_stride),
       MEMBER(q_out_batch_stride),
       MEMBER(q_out_token_stride),
       MEMBER(q_out_head_stride),
       MEMBER(k_in_batch_stride),
       MEMBER(k_in_token_stride),
       MEMBER(k_in_head_stride),
       MEMBER(k_out_batch_stride),
       MEMBER(k_out_token_stride),
       MEMBER(k_out_head_stride),
       MEMBER(cos_batch_stride),
       MEMBER(cos_token_stride),
       MEMBER(cos_head_stride),
       MEMBER(cos_element_stride),
       MEMBER(sin_batch_stride),
       MEMBER(sin_token_stride),
       MEMBER(sin_head_stride),
       MEMBER(sin_element_stride),
       MEMBER(positions_batch_stride),
       MEMBER(positions_token_stride)},
      {MEMBER(q_in), MEMBER(k_in), MEMBER(cos), MEMBER(sin), MEMBER(positions)},
      {MEMBER(q_out), MEMBER(k_out)}};
  return members;
}

#undef MEMBER

template <class P>
void set_number(const Members<P>& members, P& params, const std::string& name, int64_t value) {
  if (auto flag = members.flags.find(name); flag != members.flags.end()) {
    params.*flag->second = static_cast<uint32_t>(value);
  } else if (auto constant = members.constants.find(name); constant != members.constants.end()) {
    params.*constant->second = static_cast<int32_t>(value);
  } else if (auto size = members.sizes.find(name); size != members.sizes.end()) {
    params.*size->second = value;
  } else {
    throw std::invalid_argument("golden: unknown parameter " + name);
  }
}

template <class P>
void set_pointer(const Members<P>& members, P& params, const std::string& name, void* value) {
  if (auto input = members.inputs.find(name); input != members.inputs.end()) {
    params.*input->second = value;
  } else if (auto output = members.outputs.find(name); output != members.outputs.end()) {
    params.*output->second = value;
  } else {
    throw std::invalid_argument("golden: unknown pointer " + name);
  }
}

// ------------------------------------------------------------------------------------ files --

json read_index(const std::string& directory) {
  std::ifstream file(directory + "/index.json");
  if (!file) throw std::runtime_error("golden: cannot read " + directory + "/index.json");
  json index = json::parse(file);
  if (index.at("format") != 1) throw std::runtime_error("golden: index.json has another format");
  return index;
}

std::vector<uint8_t> read_bytes(const std::string& path, int64_t offset, int64_t count) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  file.seekg(offset);
  file.read(reinterpret_cast<char*>(bytes.data()), count);
  if (!file) throw std::runtime_error("golden: cannot read what the index wants of " + path);
  return bytes;
}

uint64_t from_hex(const json& text) { return std::stoull(text.get<std::string>(), nullptr, 16); }

int32_t dtype_of(const std::string& name) {
  static const std::map<std::string, int32_t> names = {{"float32", BITEXACT_DTYPE_FLOAT32},
                                                       {"float16", BITEXACT_DTYPE_FLOAT16},
                                                       {"bfloat16", BITEXACT_DTYPE_BFLOAT16}};
  return names.at(name);
}

std::string name_of(int32_t dtype) {
  return dtype == BITEXACT_DTYPE_FLOAT32   ? "float32"
         : dtype == BITEXACT_DTYPE_FLOAT16 ? "float16"
                                           : "bfloat16";
}

uint64_t read_element(const uint8_t* bytes, int64_t size) {
  uint64_t value = 0;
  for (int64_t i = size - 1; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

Buffer read_buffer(const json& entry, const std::string& directory) {
  static const std::map<std::string, Fill::Kind> kinds = {{"uniform", Fill::uniform},
                                                          {"bits", Fill::bits},
                                                          {"special", Fill::special},
                                                          {"index", Fill::index},
                                                          {"rotation", Fill::rotation}};
  const int32_t dtype = entry.at("dtype");
  const int64_t count = entry.at("count"), bytes = count * size_of(dtype);
  const std::string fill = entry.at("fill");
  if (fill == "mark") {
    return {dtype, [bytes] { return std::vector<uint8_t>(static_cast<size_t>(bytes), mark); }};
  }
  if (fill == "file") {
    const std::string path = directory + "/" + entry.at("file").get<std::string>();
    const int64_t offset = entry.at("offset");
    return {dtype, [=] { return read_bytes(path, offset, bytes); }};
  }
  const Fill how{kinds.at(fill), entry.at("seed"), entry.value("scale", int64_t{0}),
                 entry.value("modulus", int64_t{1})};
  return {dtype, [=] { return generate(how, dtype, count); }};
}

Output read_output(const json& entry, const std::string& directory, int64_t size) {
  Output output{from_hex(entry.at("digest")), {}};
  const std::string path = directory + "/" + entry.at("file").get<std::string>();
  for (const json& stored : entry.at("stretches")) {
    const int64_t count = stored.at("count");
    const std::vector<uint8_t> bytes = read_bytes(path, stored.at("offset"), count * size);
    Stretch stretch{stored.at("first"), {}};
    for (int64_t i = 0; i < count; ++i) stretch.bits.push_back(read_element(bytes.data() + i * size, size));
    output.stretches.push_back(std::move(stretch));
  }
  return output;
}

Case read_case(const json& entry, const std::string& directory) {
  Case c{};
  c.name = entry.at("name"), c.chain = entry.at("chain");
  const bool is_rope = entry.at("operation") == "rope";
  c.operation = is_rope ? BITEXACT_OPERATION_FUSED_ROPE : BITEXACT_OPERATION_FUSED_SILU_MUL;
  c.silu_mul = BITEXACT_SILU_MUL_PARAMS_INIT;
  c.rope = BITEXACT_ROPE_PARAMS_INIT;
  for (const auto& [name, value] : entry.at("params").items()) {
    if (is_rope) {
      set_number(rope_members(), c.rope, name, value);
    } else {
      set_number(silu_mul_members(), c.silu_mul, name, value);
    }
  }
  for (const auto& [name, buffer] : entry.at("buffers").items()) {
    c.buffers[name] = read_buffer(buffer, directory);
  }
  for (const auto& [name, place] : entry.at("pointers").items()) {
    c.pointers[name] = {place.at("buffer"), place.at("element")};
  }
  const int64_t size = size_of(is_rope ? c.rope.dtype : c.silu_mul.dtype);
  for (const auto& [name, output] : entry.at("outputs").items()) {
    c.outputs[name] = read_output(output, directory, size);
  }
  return c;
}

// -------------------------------------------------------------------------------- one run --

// An output's shape and element strides; the last axis is contiguous.
struct Layout {
  std::vector<int64_t> shape, stride;
};

Layout layout_of(const Case& c, const std::string& pointer) {
  const bitexact_rope_params& r = c.rope;
  const bitexact_silu_mul_params& s = c.silu_mul;
  if (pointer == "q_out") {
    return {{r.batches, r.tokens, r.q_heads, r.head_dim},
            {r.q_out_batch_stride, r.q_out_token_stride, r.q_out_head_stride, 1}};
  }
  if (pointer == "k_out") {
    return {{r.batches, r.tokens, r.k_heads, r.head_dim},
            {r.k_out_batch_stride, r.k_out_token_stride, r.k_out_head_stride, 1}};
  }
  return {{s.batches, s.rows, s.cols}, {s.out_batch_stride, s.out_row_stride, 1}};
}

std::vector<int64_t> coordinates(const Layout& layout, int64_t flat) {
  std::vector<int64_t> at(layout.shape.size());
  for (size_t axis = at.size(); axis-- > 0; flat /= layout.shape[axis]) at[axis] = flat % layout.shape[axis];
  return at;
}

int64_t offset_of(const Layout& layout, int64_t flat) {
  int64_t offset = 0;
  for (size_t axis = layout.shape.size(); axis-- > 0; flat /= layout.shape[axis]) {
    offset += flat % layout.shape[axis] * layout.stride[axis];
  }
  return offset;
}

int64_t count_of(const Layout& layout) {
  int64_t count = 1;
  for (int64_t extent : layout.shape) count *= extent;
  return count;
}

std::string difference(const Layout& layout, const Output& expected, const std::vector<uint64_t>& actual) {
  uint64_t digest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    digest += digest_term(static_cast<uint32_t>(i), static_cast<uint32_t>(actual[i]));
  }
  if (digest == expected.digest) return "";
  std::ostringstream text;
  text << std::hex << "digest " << digest << ", expected " << expected.digest;
  int64_t stored = 0, differing = 0;
  for (const Stretch& stretch : expected.stretches) {
    for (size_t i = 0; i < stretch.bits.size(); ++i, ++stored) {
      const int64_t flat = stretch.first + static_cast<int64_t>(i);
      if (actual[static_cast<size_t>(flat)] == stretch.bits[i] || differing++ != 0) continue;
      text << "; element (" << std::dec;
      for (int64_t coordinate : coordinates(layout, flat)) text << coordinate << ' ';
      text << ") is " << std::hex << actual[static_cast<size_t>(flat)] << ", expected " << stretch.bits[i];
    }
  }
  text << std::dec << "; " << differing << " of " << stored << " stored elements differ";
  return text.str();
}

}  // namespace

uint64_t digest_term(uint32_t key, uint32_t value) { return mix(uint64_t{key} << 32 | value); }

std::string Case::run(const Backend& backend) const {
  const bool is_rope = operation == BITEXACT_OPERATION_FUSED_ROPE;
  auto release = [&](void* memory) { backend.release ? backend.release(memory) : std::free(memory); };
  auto transfer = [](const auto& how, void* to, const void* from, size_t bytes) {
    how ? how(to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
  };
  struct Memory {
    std::vector<uint8_t> before, after;
    std::unique_ptr<void, std::function<void(void*)>> pointer;
  };
  std::map<std::string, Memory> memory;
  for (const auto& [buffer_name, buffer] : buffers) {
    Memory& m = memory[buffer_name];
    m.before = m.after = buffer.bytes();
    void* allocated = backend.allocate ? backend.allocate(m.before.size()) : std::malloc(m.before.size());
    if (allocated == nullptr) throw std::bad_alloc();
    m.pointer = {allocated, release};
    transfer(backend.upload, allocated, m.before.data(), m.before.size());
  }

  bitexact_rope_params rope_call = rope;
  bitexact_silu_mul_params silu_mul_call = silu_mul;
  for (const auto& [pointer, place] : pointers) {
    const int64_t offset = place.element * size_of(buffers.at(place.buffer).dtype);
    void* address = static_cast<char*>(memory.at(place.buffer).pointer.get()) + offset;
    if (is_rope) {
      set_pointer(rope_members(), rope_call, pointer, address);
    } else {
      set_pointer(silu_mul_members(), silu_mul_call, pointer, address);
    }
  }
  if (is_rope) {
    backend.rope(rope_call);
  } else {
    backend.silu_mul(silu_mul_call);
  }

  std::string wrong;
  for (auto& [buffer_name, m] : memory) {
    transfer(backend.download, m.after.data(), m.pointer.get(), m.after.size());
  }
  for (const auto& [pointer, expected] : outputs) {
    const Layout layout = layout_of(*this, pointer);
    const Place& place = pointers.at(pointer);
    const int64_t size = size_of(buffers.at(place.buffer).dtype);
    Memory& m = memory.at(place.buffer);
    std::vector<uint64_t> actual;
    for (int64_t flat = 0; flat < count_of(layout); ++flat) {
      const size_t at = static_cast<size_t>((place.element + offset_of(layout, flat)) * size);
      actual.push_back(read_element(&m.after.at(at), size));
      // Seen and judged: what is left over must be as it was.
      std::copy_n(&m.before[at], size, &m.after[at]);
    }
    const std::string text = difference(layout, expected, actual);
    if (!text.empty()) wrong += pointer + ": " + text + "\n";
  }
  for (const auto& [buffer_name, m] : memory) {
    if (m.after != m.before) wrong += "the call wrote to " + buffer_name + " outside its output\n";
  }
  return wrong;
}

bool Case::needs_cuda_expf() const {
  return operation == BITEXACT_OPERATION_FUSED_SILU_MUL &&
         (silu_mul.dtype == BITEXACT_DTYPE_FLOAT32 || silu_mul.compute_dtype == BITEXACT_DTYPE_FLOAT32);
}

std::string golden_directory() {
  const char* const elsewhere = std::getenv("BITEXACT_GOLDEN_DIR");
  return elsewhere != nullptr ? elsewhere : BITEXACT_GOLDEN_DIR;
}

std::vector<Case> load_cases(const std::string& directory) {
  std::vector<Case> cases;
  const json index = read_index(directory);
  for (const json& entry : index.at("cases")) cases.push_back(read_case(entry, directory));
  return cases;
}

std::vector<Domain> load_domains(const std::string& directory) {
  std::vector<Domain> domains;
  const json index = read_index(directory);
  for (const json& entry : index.at("domains").at("digests")) {
    domains.push_back({entry.at("name"), dtype_of(entry.at("dtype")), entry.at("keys"),
                       from_hex(entry.at("digest")), from_hex(entry.at("sample_digest"))});
  }
  return domains;
}

std::vector<uint32_t> sample_keys(const std::string& directory) {
  const json sample = read_index(directory).at("domains").at("sample");
  const uint32_t step = sample.at("step"), count = sample.at("count");
  std::vector<uint32_t> keys;
  for (uint32_t i = 0; i < count; ++i) keys.push_back(i * step);
  return keys;
}

std::string load_table_sha256(const std::string& directory, const std::string& name, int32_t dtype) {
  return read_index(directory).at("domains").at("tables_sha256").at(name).at(name_of(dtype));
}

std::vector<uint32_t> load_silu32_table(const std::string& directory, int32_t dtype) {
  const json entry = read_index(directory).at("silu32_tables").at(name_of(dtype));
  const std::string path = directory + "/" + entry.at("file").get<std::string>();
  const std::vector<uint8_t> bytes = read_bytes(path, entry.at("offset"), 0x10000 * 4);
  std::vector<uint32_t> table;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    table.push_back(static_cast<uint32_t>(read_element(&bytes[i], 4)));
  }
  return table;
}

std::map<std::string, std::string> captured_with(const std::string& directory) {
  return read_index(directory).at("captured_with");
}

}  // namespace bitexact_golden
