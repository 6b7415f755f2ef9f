// Byte counts and durations as people write and read them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::base {

inline constexpr uint64_t operator""_KiB(unsigned long long n) { return n << 10; }
inline constexpr uint64_t operator""_MiB(unsigned long long n) { return n << 20; }
inline constexpr uint64_t operator""_GiB(unsigned long long n) { return n << 30; }

// "8GiB", "500 MB", "4k", "1048576". Binary for KiB/MiB/GiB/TiB and bare K/M/G/T, decimal for KB/MB/GB/TB.
// Error(config) on anything else, on overflow and on a fraction of a byte.
uint64_t parse_bytes(std::string_view text);

// "1.5 GiB", "20.0 MiB", "512 B".
std::string format_bytes(uint64_t bytes);

// "3.2 s", "2 min 05 s", "1 h 12 min".
std::string format_duration(double seconds);

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr uint64_t ceil_div(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace sluice::base
