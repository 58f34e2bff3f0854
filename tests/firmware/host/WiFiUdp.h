#pragma once
#include <cstddef>
#include <cstdint>

// Datagrams by a socket of this machine.
class WiFiUDP {
 public:
  uint8_t begin(uint16_t port);
  int beginPacket(const char *host, uint16_t port);
  size_t write(const uint8_t *bytes, size_t length);
  int endPacket();
  int parsePacket();
  int read(uint8_t *bytes, size_t length_max);

 private:
  int socket_ = -1;
  uint32_t host_ = 0;
  uint16_t port_ = 0;
  uint8_t sending_[2048] = {}, received_[2048] = {};
  size_t sending_length_ = 0, received_length_ = 0;
};
