/* LD_PRELOAD: delays each fsync and fdatasync by SLOW_SYNC_MS, as on an SD card. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_a_while(void) {
    const char *text = getenv("SLOW_SYNC_MS");
    double milliseconds = text ? atof(text) : 0.0;
    struct timespec pause = {(time_t)(milliseconds / 1e3), (long)(milliseconds * 1e6) % 1000000000L};
    nanosleep(&pause, NULL);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_a_while();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_a_while();
    return real(file);
}
