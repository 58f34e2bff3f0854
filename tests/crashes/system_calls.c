/* LD_PRELOAD: lets one system call of the process fail, once `arm` was called; before that it changes nothing.
 *
 * A call is named by its kind, the object that it changes, and its number among the calls of this kind on this object.
 * An object is the last part of a path, with # in place of each number; a socket is tcp, udp or unix. Each call is a line
 * of a log, and the one that fails has a line with ! behind it.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NONE, KILL, TORN, SHORT, FAIL }; /* TORN: half of the bytes are written, then the process is killed */

static struct {
    pthread_mutex_t lock;
    int armed, log, number, seen, error;
    enum fault fault;
    char kind[32], object[256];
} plan = {.lock = PTHREAD_MUTEX_INITIALIZER, .log = -1};

void arm(const char *kind, const char *object, int number, int fault, int error, const char *log) {
    snprintf(plan.kind, sizeof plan.kind, "%s", kind);
    snprintf(plan.object, sizeof plan.object, "%s", object);
    plan.number = number;
    plan.fault = fault;
    plan.error = error;
    plan.log = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    plan.armed = plan.log >= 0;
}

static void name_of(const char *path, char *name, size_t size) {
    const char *last = strrchr(path, '/');
    size_t at = 0;
    for (const char *c = last ? last + 1 : path; *c && at + 1 < size; c++) {
        if (!isdigit((unsigned char)*c)) name[at++] = *c;
        else if (at == 0 || name[at - 1] != '#') name[at++] = '#';
    }
    name[at] = 0;
}

static void name_of_file(int file, char *name, size_t size) {
    char link[64], path[4096];
    int domain = 0, type = 0;
    socklen_t length = sizeof domain;
    if (getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0) {
        length = sizeof type;
        getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &length);
        snprintf(name, size, "%s", domain == AF_UNIX ? "unix" : type == SOCK_DGRAM ? "udp" : "tcp");
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t count = readlink(link, path, sizeof path - 1);
    path[count > 0 ? count : 0] = 0;
    name_of(path, name, size);
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* Counts a call; returns what is to happen to it. */
static enum fault strikes(const char *kind, const char *object) {
    pthread_mutex_lock(&plan.lock);
    char line[320];
    int count = snprintf(line, sizeof line, "%s %s\n", kind, object);
    if (syscall(SYS_write, plan.log, line, (size_t)count) != count) abort();
    int hit = !strcmp(kind, plan.kind) && !strcmp(object, plan.object) && ++plan.seen == plan.number;
    if (hit && syscall(SYS_write, plan.log, "!\n", 2) != 2) abort();
    pthread_mutex_unlock(&plan.lock);
    if (!hit) return NONE;
    if (plan.fault == KILL) die();
    if (plan.fault == FAIL) errno = plan.error;
    return plan.fault;
}

static enum fault on_file(const char *kind, int file) {
    char object[256];
    int before = errno;
    if (!plan.armed) return NONE;
    name_of_file(file, object, sizeof object);
    errno = before;
    return strikes(kind, object);
}

static enum fault on_path(const char *kind, const char *path) {
    char object[256];
    if (!plan.armed) return NONE;
    name_of(path, object, sizeof object);
    return strikes(kind, object);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* Of the bytes of a call that is cut short, half are transferred. */
#define TRANSFERS(kind, file, count, call) do { \
        enum fault fault = on_file(kind, file); \
        if (fault == FAIL) return -1; \
        if (fault == NONE || (count) < 2) return call; \
        (count) /= 2; \
        ssize_t transferred = call; \
        if (fault == TORN) die(); \
        return transferred; \
    } while (0)

ssize_t write(int file, const void *data, size_t count) {
    REAL(write);
    TRANSFERS("write", file, count, real(file, data, count));
}

ssize_t pwrite(int file, const void *data, size_t count, off_t at) {
    REAL(pwrite);
    TRANSFERS("pwrite", file, count, real(file, data, count, at));
}

ssize_t pwrite64(int file, const void *data, size_t count, off64_t at) {
    REAL(pwrite64);
    TRANSFERS("pwrite", file, count, real(file, data, count, at));
}

ssize_t send(int file, const void *data, size_t count, int flags) {
    REAL(send);
    TRANSFERS("sendto", file, count, real(file, data, count, flags));
}

ssize_t sendto(int file, const void *data, size_t count, int flags, const struct sockaddr *to, socklen_t length) {
    REAL(sendto);
    TRANSFERS("sendto", file, count, real(file, data, count, flags, to, length));
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags) {
    REAL(sendmsg);
    return on_file("sendmsg", file) == FAIL ? -1 : real(file, message, flags);
}

int sendmmsg(int file, struct mmsghdr *messages, unsigned int count, int flags) {
    REAL(sendmmsg);
    return on_file("sendmmsg", file) == FAIL ? -1 : real(file, messages, count, flags);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    return on_file("writev", file) == FAIL ? -1 : real(file, parts, count);
}

int fsync(int file) {
    REAL(fsync);
    return on_file("fsync", file) == FAIL ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return on_file("fdatasync", file) == FAIL ? -1 : real(file);
}

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    return on_file("ftruncate", file) == FAIL ? -1 : real(file, size);
}

int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64);
    return on_file("ftruncate", file) == FAIL ? -1 : real(file, size);
}

int truncate(const char *path, off_t size) {
    REAL(truncate);
    return on_path("truncate", path) == FAIL ? -1 : real(path, size);
}

int truncate64(const char *path, off64_t size) {
    REAL(truncate64);
    return on_path("truncate", path) == FAIL ? -1 : real(path, size);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return on_path("rename", from) == FAIL ? -1 : real(from, to);
}

int unlink(const char *path) {
    REAL(unlink);
    return on_path("unlink", path) == FAIL ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return on_path("mkdir", path) == FAIL ? -1 : real(path, mode);
}

/* Only opening for writing counts. */
#define OPENS(name, ...) do { \
        mode_t mode = 0; \
        if (flags & O_CREAT) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        if ((flags & O_ACCMODE) != O_RDONLY && on_path("open", path) == FAIL) return -1; \
        return real(__VA_ARGS__, flags, mode); \
    } while (0)

int open(const char *path, int flags, ...) {
    REAL(open);
    OPENS(open, path);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    OPENS(open64, path);
}

int openat(int folder, const char *path, int flags, ...) {
    REAL(openat);
    OPENS(openat, folder, path);
}

int openat64(int folder, const char *path, int flags, ...) {
    REAL(openat64);
    OPENS(openat64, folder, path);
}
