/* LD_PRELOAD: makes the bytes from $BAD_FIRST to $BAD_LAST of the file with the inode $BAD_INODE unreadable. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long long number(const char *name) {
    const char *text = getenv(name);
    return text ? atoll(text) : -1;
}

static int is_bad(int file, long long first, size_t count) {
    struct stat about;
    if (fstat(file, &about) != 0 || (long long)about.st_ino != number("BAD_INODE")) return 0;
    return first <= number("BAD_LAST") && first + (long long)count > number("BAD_FIRST");
}

ssize_t pread64(int file, void *data, size_t count, off64_t at) {
    if (is_bad(file, at, count)) return errno = EIO, -1;
    return syscall(SYS_pread64, file, data, count, at);
}

ssize_t pread(int file, void *data, size_t count, off_t at) { return pread64(file, data, count, at); }

ssize_t read(int file, void *data, size_t count) {
    off_t at = lseek(file, 0, SEEK_CUR);
    if (at >= 0 && is_bad(file, at, count)) return errno = EIO, -1;
    return syscall(SYS_read, file, data, count);
}
