/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slow disk in user space: a FUSE file system with one file, "disk", whose bytes lie in
 * an image file and whose rate, operations per second and latency are what was asked for.
 * A loop device and a real file system go on top (volume.sh), so that everything above
 * the block layer is real: page cache, direct I/O, read-ahead, inodes.
 *
 * Model: every limit is a lane that serves one request after the other. A request that
 * arrives takes the next free time of each lane it belongs to and is answered when the
 * last of them has served it, but not before its latency has passed. Lanes may lag
 * BURST_NS behind the clock, which makes up for late wake-ups; so rates are exact over
 * more than a few milliseconds.
 *
 * Threads: libfuse's, one per request in flight, which sleep until their request is due.
 * Each lane has a lock of its own, the faults have one; no two are held at a time.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BURST_NS UINT64_C(2000000)
#define NS_PER_S 1e9
#define DISK_INO 2
#define REQUEST_MAX (1U << 20)
#define THREADS 128
#define CACHE_FOREVER 1e9

enum lane_name { LANE_READ_BYTES, LANE_WRITE_BYTES, LANE_BYTES, LANE_READS, LANE_WRITES, LANES };

struct lane {
    pthread_mutex_t lock;
    uint64_t free_ns;   /* when the lane has served all that has come */
    double ns_per_unit; /* 0: no limit */
};

/* What the control file asks for; see usage(). */
struct faults {
    double eio_read, eio_write, enospc_write; /* probabilities */
    uint64_t eio_from, eio_to;                /* bytes of the disk that cannot be read or written */
    uint64_t hang_ns;
    int eio_sync;
};

static struct {
    int fd;
    uint64_t bytes;
    struct lane lanes[LANES];
    uint64_t read_latency_ns, write_latency_ns, sync_latency_ns;
    const char *control_path;
    pthread_mutex_t faults_lock;
    struct faults faults;
    struct timespec control_time;
} disk = {.faults_lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t
now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * (uint64_t)NS_PER_S + (uint64_t)now.tv_nsec;
}

static void
sleep_until(uint64_t due_ns)
{
    const struct timespec due = {.tv_sec = (time_t)(due_ns / 1000000000U),
                                 .tv_nsec = (long)(due_ns % 1000000000U)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
        ;
}

/* Puts units into a lane; returns when they will have been served. */
static uint64_t
lane_take(enum lane_name name, double units, uint64_t arrived_ns)
{
    struct lane *lane = &disk.lanes[name];
    uint64_t done_ns;

    if (!(lane->ns_per_unit > 0))
        return arrived_ns;
    pthread_mutex_lock(&lane->lock);
    if (lane->free_ns + BURST_NS < arrived_ns)
        lane->free_ns = arrived_ns - BURST_NS;
    lane->free_ns += (uint64_t)(units * lane->ns_per_unit);
    done_ns = lane->free_ns;
    pthread_mutex_unlock(&lane->lock);
    return done_ns;
}

static uint64_t
later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* When a request that arrives now is to be answered. */
static uint64_t
request_due(int writes, size_t n_bytes)
{
    const uint64_t arrived = now_ns();
    const double bytes = (double)n_bytes;
    uint64_t due = arrived + (writes ? disk.write_latency_ns : disk.read_latency_ns);

    due = later(due, lane_take(writes ? LANE_WRITE_BYTES : LANE_READ_BYTES, bytes, arrived));
    due = later(due, lane_take(writes ? LANE_WRITES : LANE_READS, 1, arrived));
    return later(due, lane_take(LANE_BYTES, bytes, arrived));
}

/* One line of the control file: a name and one or two numbers. What is not known is
 * ignored. */
static void
faults_read_line(struct faults *faults, const char *line)
{
    char name[32];
    double first = 0, second = 0;

    if (sscanf(line, "%31s %lf %lf", name, &first, &second) < 2)
        return;
    if (strcmp(name, "eio_read") == 0)
        faults->eio_read = first;
    else if (strcmp(name, "eio_write") == 0)
        faults->eio_write = first;
    else if (strcmp(name, "enospc_write") == 0)
        faults->enospc_write = first;
    else if (strcmp(name, "eio_sync") == 0)
        faults->eio_sync = first > 0;
    else if (strcmp(name, "hang_ms") == 0)
        faults->hang_ns = (uint64_t)(first * 1e6);
    else if (strcmp(name, "eio_range") == 0) {
        faults->eio_from = (uint64_t)first;
        faults->eio_to = (uint64_t)second;
    }
}

/* The faults in force, read again where the control file has changed. */
static struct faults
faults_now(void)
{
    struct faults faults;
    struct stat st;
    char line[128];
    FILE *file;

    if (!disk.control_path)
        return (struct faults){0};
    pthread_mutex_lock(&disk.faults_lock);
    if (stat(disk.control_path, &st) == 0 &&
        memcmp(&st.st_mtim, &disk.control_time, sizeof(st.st_mtim)) != 0) {
        disk.control_time = st.st_mtim;
        disk.faults = (struct faults){0};
        file = fopen(disk.control_path, "re");
        while (file && fgets(line, sizeof(line), file))
            faults_read_line(&disk.faults, line);
        if (file)
            fclose(file);
    }
    faults = disk.faults;
    pthread_mutex_unlock(&disk.faults_lock);
    return faults;
}

static int
happens(double probability)
{
    static __thread unsigned int state;

    if (!(probability > 0))
        return 0;
    if (!state)
        state = (unsigned int)now_ns() | 1;
    return rand_r(&state) < probability * RAND_MAX;
}

/* The errno that a request is to fail with, or 0. */
static int
request_fault(const struct faults *faults, int writes, uint64_t offset, size_t n_bytes)
{
    if (happens(writes ? faults->eio_write : faults->eio_read))
        return EIO;
    if (offset < faults->eio_to && offset + n_bytes > faults->eio_from)
        return EIO;
    return writes && happens(faults->enospc_write) ? ENOSPC : 0;
}

/* This thread's buffer, aligned for direct I/O on the image. Lives as long as the
 * thread. */
static char *
request_buffer(void)
{
    static __thread char *buffer;

    if (!buffer && posix_memalign((void **)&buffer, 4096, REQUEST_MAX) != 0)
        buffer = NULL;
    return buffer;
}

static void
describe(fuse_ino_t ino, struct stat *st)
{
    *st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_mode = S_IFDIR | 0755};
    if (ino == DISK_INO) {
        st->st_mode = S_IFREG | 0600;
        st->st_size = (off_t)disk.bytes;
        st->st_blksize = 4096;
        st->st_blocks = (blkcnt_t)(disk.bytes / 512);
    }
}

static void
on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    struct stat st;

    (void)info;
    describe(ino, &st);
    fuse_reply_attr(req, &st, CACHE_FOREVER);
}

/* Times and modes may be set and are forgotten; the loop driver and mkfs do not mind. */
static void
on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int which,
           struct fuse_file_info *info)
{
    (void)attr;
    (void)which;
    on_getattr(req, ino, info);
}

static void
on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {
        .ino = DISK_INO, .attr_timeout = CACHE_FOREVER, .entry_timeout = CACHE_FOREVER};

    if (parent != FUSE_ROOT_ID || strcmp(name, "disk") != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    describe(DISK_INO, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void
on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
    if (ino != DISK_INO) {
        fuse_reply_err(req, EISDIR);
        return;
    }
    info->direct_io = 1; /* no page cache between the loop device and here */
    fuse_reply_open(req, info);
}

static void
on_read(fuse_req_t req, fuse_ino_t ino, size_t n_bytes, off_t offset, struct fuse_file_info *info)
{
    const uint64_t due = request_due(0, n_bytes);
    const struct faults faults = faults_now();
    char *buffer = request_buffer();
    int error = buffer ? request_fault(&faults, 0, (uint64_t)offset, n_bytes) : ENOMEM;
    ssize_t got = 0;

    (void)ino;
    (void)info;
    if (!error && n_bytes > REQUEST_MAX)
        n_bytes = REQUEST_MAX;
    if (!error) {
        got = pread(disk.fd, buffer, n_bytes, offset);
        error = got < 0 ? errno : 0;
    }
    sleep_until(due + faults.hang_ns);
    if (error)
        fuse_reply_err(req, error);
    else
        fuse_reply_buf(req, buffer, (size_t)got);
}

static void
on_write(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t offset,
         struct fuse_file_info *info)
{
    const size_t n_bytes = fuse_buf_size(in);
    const uint64_t due = request_due(1, n_bytes);
    const struct faults faults = faults_now();
    struct fuse_bufvec out = FUSE_BUFVEC_INIT(n_bytes);
    int error = request_fault(&faults, 1, (uint64_t)offset, n_bytes);
    ssize_t put = 0;

    (void)ino;
    (void)info;
    out.buf[0].mem = request_buffer();
    if (!out.buf[0].mem || n_bytes > REQUEST_MAX)
        error = ENOMEM;
    if (!error && fuse_buf_copy(&out, in, 0) != (ssize_t)n_bytes)
        error = EIO;
    if (!error) {
        put = pwrite(disk.fd, out.buf[0].mem, n_bytes, offset);
        error = put < 0 ? errno : 0;
    }
    sleep_until(due + faults.hang_ns);
    if (error)
        fuse_reply_err(req, error);
    else
        fuse_reply_write(req, (size_t)put);
}

static void
on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *info)
{
    const uint64_t due = now_ns() + disk.sync_latency_ns;
    const struct faults faults = faults_now();

    (void)ino;
    (void)datasync;
    (void)info;
    sleep_until(due + faults.hang_ns);
    fuse_reply_err(req, faults.eio_sync ? EIO : 0); /* the image outlives no power cut anyway */
}

static void
on_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t n_bytes,
             struct fuse_file_info *info)
{
    (void)ino;
    (void)info;
    fuse_reply_err(req, fallocate(disk.fd, mode, offset, n_bytes) < 0 ? errno : 0);
}

static void
on_init(void *context, struct fuse_conn_info *conn)
{
    (void)context;
    conn->max_write = REQUEST_MAX;
    conn->max_background = THREADS * 2;
    conn->congestion_threshold = THREADS * 2;
    conn->want &= ~(unsigned)FUSE_CAP_SPLICE_READ; /* requests are copied into aligned memory */
}

static const struct fuse_lowlevel_ops operations = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .open = on_open,
    .read = on_read,
    .write_buf = on_write,
    .fsync = on_fsync,
    .fallocate = on_fallocate,
};

static int
usage(void)
{
    fprintf(stderr,
            "usage: slowdisk IMAGE MOUNTPOINT [KEY=VALUE]...\n"
            "  rbps wbps bps     bytes a second of reads, of writes, of both together\n"
            "  riops wiops       operations a second\n"
            "  rlat wlat flat    microseconds that a read, a write, a flush takes at least\n"
            "  ctl=FILE          is read whenever it changes; lines of: eio_read P, eio_write P,\n"
            "                    enospc_write P, eio_range FROM TO, eio_sync 1, hang_ms N\n"
            "  foreground=1      stays in the foreground\n"
            "Numbers may end in K, M or G (powers of 1000). No key: no limit.\n");
    return 2;
}

/* Reads a number above 0 with an optional suffix; returns 0 for anything else. */
static double
parse_number(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || !(value > 0) || (*end && end[1]))
        return 0;
    switch (*end) {
    case '\0':
        return value;
    case 'K':
        return value * 1e3;
    case 'M':
        return value * 1e6;
    case 'G':
        return value * 1e9;
    default:
        return 0;
    }
}

/* Reads one KEY=VALUE. Returns 0 or -1. */
static int
parse_key(char *text, int *ret_foreground)
{
    static const struct {
        const char *key;
        enum lane_name lane;
    } rates[] = {{"rbps", LANE_READ_BYTES},
                 {"wbps", LANE_WRITE_BYTES},
                 {"bps", LANE_BYTES},
                 {"riops", LANE_READS},
                 {"wiops", LANE_WRITES}};
    char *value = strchr(text, '=');
    double number;

    if (!value)
        return -1;
    *value++ = '\0';
    if (strcmp(text, "ctl") == 0) {
        disk.control_path = value;
        return 0;
    }
    number = parse_number(value);
    if (!(number > 0))
        return -1;
    for (size_t k = 0; k < sizeof(rates) / sizeof(rates[0]); k++) {
        if (strcmp(text, rates[k].key) == 0) {
            disk.lanes[rates[k].lane].ns_per_unit = NS_PER_S / number;
            return 0;
        }
    }
    if (strcmp(text, "rlat") == 0)
        disk.read_latency_ns = (uint64_t)(number * 1e3);
    else if (strcmp(text, "wlat") == 0)
        disk.write_latency_ns = (uint64_t)(number * 1e3);
    else if (strcmp(text, "flat") == 0)
        disk.sync_latency_ns = (uint64_t)(number * 1e3);
    else if (strcmp(text, "foreground") == 0)
        *ret_foreground = 1;
    else
        return -1;
    return 0;
}

/* Opens the image, for direct I/O where its file system has it. Returns 0 or -1. */
static int
open_image(const char *path)
{
    off_t end;

    disk.fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (disk.fd < 0)
        disk.fd = open(path, O_RDWR | O_CLOEXEC);
    if (disk.fd < 0) {
        perror(path);
        return -1;
    }
    end = lseek(disk.fd, 0, SEEK_END);
    if (end < 4096) {
        fprintf(stderr, "slowdisk: %s: an image has at least 4096 bytes\n", path);
        return -1;
    }
    disk.bytes = (uint64_t)end & ~UINT64_C(4095);
    return 0;
}

static int
serve(struct fuse_session *session, int foreground)
{
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    int rc;

    if (!config)
        return 1;
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, THREADS);
    fuse_loop_cfg_set_idle_threads(config, THREADS);
    rc = fuse_daemonize(foreground);
    if (rc == 0)
        rc = fuse_session_loop_mt(session, config);
    fuse_loop_cfg_destroy(config);
    return rc != 0;
}

int
main(int argc, char **argv)
{
    char *fuse_argv[] = {(char[]){"slowdisk"}, (char[]){"-ofsname=slowdisk"}, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
    struct fuse_session *session;
    int foreground = 0, rc = 1;

    for (int k = 0; k < LANES; k++)
        pthread_mutex_init(&disk.lanes[k].lock, NULL);
    for (int k = 3; k < argc; k++) {
        if (parse_key(argv[k], &foreground) < 0) {
            fprintf(stderr, "slowdisk: %s: no such key, or not a number above 0\n", argv[k]);
            return usage();
        }
    }
    if (argc < 3)
        return usage();
    if (open_image(argv[1]) < 0)
        return 1;
    session = fuse_session_new(&args, &operations, sizeof(operations), NULL);
    if (!session)
        return 1;
    if (fuse_set_signal_handlers(session) == 0) {
        if (fuse_session_mount(session, argv[2]) == 0) {
            rc = serve(session, foreground);
            fuse_session_unmount(session);
        }
        fuse_remove_signal_handlers(session);
    }
    fuse_session_destroy(session);
    return rc;
}
