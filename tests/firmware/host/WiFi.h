#pragma once
enum { WL_CONNECTED = 3 };

struct WiFiStation {
  void begin(const char *, const char *) {}
  int status() { return WL_CONNECTED; }
};
inline WiFiStation WiFi;
