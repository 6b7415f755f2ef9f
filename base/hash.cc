#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace sluice::base {

uint64_t xxh3(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

struct Xxh3::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;
void Xxh3::update(const void* data, size_t bytes) { XXH3_64bits_update(state_->xxh, data, bytes); }
uint64_t Xxh3::digest() const { return XXH3_64bits_digest(state_->xxh); }

std::string hash_hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace sluice::base
