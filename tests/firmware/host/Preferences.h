#pragma once
#include <cstddef>
#include <cstdint>

// The flash: one file for each key.
class Preferences {
 public:
  bool begin(const char *space, bool read_only);
  uint32_t getUInt(const char *key, uint32_t otherwise);
  size_t putUInt(const char *key, uint32_t value);
  void end() {}

 private:
  const char *space_ = "";
};
