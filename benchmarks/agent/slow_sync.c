/* LD_PRELOAD: a disk as slow as an SD card: each fsync and fdatasync takes SLOW_SYNC_MS longer, and with
   SLOW_BYTES_PER_SECOND also as long as what was written since the one before takes at that rate. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

static _Atomic long unsynced;

static double setting(const char *name) {
    const char *text = getenv(name);
    return text ? atof(text) : 0.0;
}

static void wait_a_while(void) {
    double rate = setting("SLOW_BYTES_PER_SECOND"), bytes = (double)atomic_exchange(&unsynced, 0);
    double milliseconds = setting("SLOW_SYNC_MS") + (rate > 0 ? bytes * 1e3 / rate : 0.0);
    struct timespec pause = {(time_t)(milliseconds / 1e3), (long)(milliseconds * 1e6) % 1000000000L};
    nanosleep(&pause, NULL);
}

ssize_t pwrite64(int file, const void *from, size_t count, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    ssize_t done = real(file, from, count, at);
    if (done > 0) unsynced += done;
    return done;
}

ssize_t pwrite(int file, const void *from, size_t count, off_t at) { return pwrite64(file, from, count, at); }

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
