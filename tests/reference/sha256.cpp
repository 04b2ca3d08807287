#include "sha256.h"

#include <cmath>
#include <cstdint>
#include <vector>

namespace bitexact_reference {
namespace {

uint32_t rotate(uint32_t x, int by) { return (x >> by) | (x << (32 - by)); }

// The first 32 bits of the fraction of a root: the standard's constants, worked out instead of listed.
uint32_t fraction_bits(long double root) {
  return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

std::vector<int> primes(size_t count) {
  std::vector<int> found;
  for (int n = 2; found.size() < count; ++n) {
    bool prime = true;
    for (int p : found) prime = prime && n % p != 0;
    if (prime) found.push_back(n);
  }
  return found;
}

}  // namespace

std::string sha256(const void* data, size_t size) {
  uint32_t k[64], state[8];
  const std::vector<int> prime = primes(64);
  for (size_t i = 0; i < 64; ++i) k[i] = fraction_bits(std::cbrt(static_cast<long double>(prime[i])));
  for (size_t i = 0; i < 8; ++i) state[i] = fraction_bits(std::sqrt(static_cast<long double>(prime[i])));

  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  std::vector<uint8_t> message(bytes, bytes + size);
  message.push_back(0x80);
  while (message.size() % 64 != 56) message.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) {
    message.push_back(static_cast<uint8_t>(static_cast<uint64_t>(size) * 8 >> shift));
  }

  for (size_t block = 0; block < message.size(); block += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (size_t j = 0; j < 4; ++j) w[i] = w[i] << 8 | message[block + 4 * i + j];
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
      const uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t sums[] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += sums[i];
  }

  std::string text;
  for (uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

}  // namespace bitexact_reference
