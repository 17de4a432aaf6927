/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where io_uring is refused: "auto" takes threads instead, "uring" says why not, and a
 * ring that is cut off in mid-run leaves its work to the pool. Each in a child under a
 * system call filter.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/pool.h"
#include "io/aio.h"

#define N_OPS 100

/* Makes a system call fail in this process. x32 calls have other numbers; nobody makes
 * them. */
static bool
refuse(unsigned call, unsigned error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* For children, where cmocka's assertions do not work. */
static void
must(bool is_good, int line)
{
    if (is_good)
        return;
    (void)fprintf(stderr, "line %d\n", line);
    _exit(1);
}
#define MUST(condition) must(condition, __LINE__)

static void
in_child(void (*fn)(unsigned error), unsigned error)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        fn(error);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static struct sti_aio_opts
opts_for(const char *method)
{
    struct sti_aio_opts opts = {.method = method, .queue_depth = 16, .max_open_files = 8};

    MUST(sti_pool_open(&opts.pool, 1, 2) == 0);
    return opts;
}

/* A file to read whole; both kinds have an entry in a ring. */
static struct sti_aio_op
read_op(char *byte, bool is_file, int fd)
{
    return (struct sti_aio_op){.kind = is_file ? STI_AIO_READ_FILE : STI_AIO_READ,
                               .dir_fd = AT_FDCWD,
                               .path = "/dev/zero",
                               .fd = fd,
                               .bytes = byte,
                               .n_bytes = 1};
}

static void
auto_takes_threads(unsigned error)
{
    struct sti_aio_opts opts = opts_for(NULL);
    struct sti_aio *aio = NULL;
    stk_error err = {0};
    char byte = 1;

    MUST(refuse(SYS_io_uring_setup, error));
    MUST(sti_aio_open(&aio, &opts, &err) == 0);
    MUST(err.code == 0 && err.message[0] == '\0');
    MUST(strcmp(sti_aio_method_name(aio), "sync") == 0);
    struct sti_aio_op op = read_op(&byte, true, -1);
    MUST(sti_aio_run(aio, &op) == 1 && byte == 0);
    sti_aio_close(aio);
    sti_pool_close(opts.pool);
}

static void
no_ring_without_submits(unsigned error)
{
    struct sti_aio_opts opts = opts_for("auto");
    struct sti_aio *aio = NULL;
    stk_error err = {0};

    MUST(refuse(SYS_io_uring_enter, error));
    MUST(sti_aio_open(&aio, &opts, NULL) == 0);
    MUST(strcmp(sti_aio_method_name(aio), "sync") == 0);
    sti_aio_close(aio);
    opts.method = "uring";
    MUST(sti_aio_open(&aio, &opts, &err) == -ENOSYS && strstr(err.message, "use sync"));
    sti_pool_close(opts.pool);
}

static void
uring_says_why_not(unsigned error)
{
    struct sti_aio_opts opts = opts_for("uring");
    struct sti_aio *aio = NULL;
    stk_error err = {0};

    MUST(refuse(SYS_io_uring_setup, error));
#ifdef STI_HAVE_URING
    const int code = error == ENOMEM ? -ENOMEM : -ENOSYS;
    const char *const hint = error == EPERM    ? "kernel.io_uring_disabled"
                             : error == ENOMEM ? "raise RLIMIT_MEMLOCK"
                                               : "has no io_uring";
#else
    const int code = -ENOSYS;
    const char *const hint = "no liburing";
#endif
    MUST(sti_aio_open(&aio, &opts, &err) == code);
    MUST(aio == NULL && err.code == code);
    MUST(strstr(err.message, "use sync") != NULL && strstr(err.message, hint) != NULL);
    sti_pool_close(opts.pool);
}

static void
a_ring_cut_off_goes_on(unsigned error)
{
    struct sti_aio_opts opts = opts_for("auto");
    struct sti_aio *aio = NULL;
    struct sti_aio_op ops[N_OPS];
    char bytes[N_OPS];
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

    MUST(fd >= 0 && sti_aio_open(&aio, &opts, NULL) == 0);
    memset(bytes, 1, sizeof(bytes));
    struct sti_aio_op before = read_op(bytes, true, fd);
    MUST(sti_aio_run(aio, &before) == 1);
    MUST(refuse(SYS_io_uring_enter, error));
    for (int at = 0; at < N_OPS; at++) {
        ops[at] = read_op(&bytes[at], at % 3 != 0, fd);
        sti_aio_submit(aio, &ops[at]);
        if (at == N_OPS / 2)
            sti_aio_flush(aio);
    }
    while (sti_aio_pending(aio) > 0)
        (void)sti_aio_wait(aio, STI_NS_PER_S);
    for (int at = 0; at < N_OPS; at++)
        MUST(ops[at].result == 1 && bytes[at] == 0);
    /* And it sleeps when there is nothing to do. */
    (void)sti_aio_wait(aio, 1000);
    uint64_t start_ns = sti_clock_ns();
    (void)sti_aio_wait(aio, STI_NS_PER_S / 20);
    MUST(sti_clock_ns() - start_ns >= STI_NS_PER_S / 25);
    sti_aio_wake(aio);
    (void)sti_aio_wait(aio, UINT64_MAX);
    sti_aio_close(aio);
    sti_pool_close(opts.pool);
}

/* What a ring does not do at once needs a thread of the kernel's, which counts against
 * the user's processes. */
static void
no_thread_for_the_kernel(unsigned as_uring)
{
    struct sti_aio_opts opts = opts_for(as_uring ? "uring" : "auto");
    const struct rlimit one = {1, 1};
    struct sti_aio *aio = NULL;
    struct sti_aio_op ops[N_OPS];
    struct statx found[N_OPS];
    char bytes[N_OPS];

    /* The administrator has no limit. The pool's threads are there already. */
    if (geteuid() == 0)
        MUST(setuid(65533) == 0);
    MUST(setrlimit(RLIMIT_NPROC, &one) == 0);
    MUST(sti_aio_open(&aio, &opts, NULL) == 0);
    memset(bytes, 1, sizeof(bytes));
    for (int at = 0; at < N_OPS; at++) {
        ops[at] = read_op(&bytes[at], true, -1);
        if (at % 2 == 0)
            ops[at] = (struct sti_aio_op){.kind = STI_AIO_STATX,
                                          .dir_fd = AT_FDCWD,
                                          .path = "/dev/zero",
                                          .statx = &found[at],
                                          .statx_mask = STATX_TYPE};
        sti_aio_submit(aio, &ops[at]);
    }
    while (sti_aio_pending(aio) > 0)
        (void)sti_aio_wait(aio, STI_NS_PER_S);
    for (int at = 0; at < N_OPS; at++) {
        MUST(ops[at].result == at % 2);
        MUST(at % 2 == 1 ? bytes[at] == 0 : S_ISCHR(found[at].stx_mode));
    }
    sti_aio_close(aio);
    sti_pool_close(opts.pool);
}

static void
auto_falls_back(void **state)
{
    (void)state;
    in_child(auto_takes_threads, EPERM);
    in_child(auto_takes_threads, ENOSYS);
    in_child(no_ring_without_submits, EPERM);
    in_child(no_ring_without_submits, EACCES);
}

static void
uring_explains(void **state)
{
    (void)state;
    in_child(uring_says_why_not, EPERM);
    in_child(uring_says_why_not, ENOSYS);
    in_child(uring_says_why_not, ENOMEM);
}

static void
a_cut_off_ring_is_survived(void **state)
{
    (void)state;
    in_child(a_ring_cut_off_goes_on, EPERM);
    in_child(a_ring_cut_off_goes_on, ENOSYS);
}

static void
a_ring_without_threads_is_survived(void **state)
{
    (void)state;
    in_child(no_thread_for_the_kernel, false);
#ifdef STI_HAVE_URING
    in_child(no_thread_for_the_kernel, true);
#endif
}

static void
unknown_methods_are_named(void **state)
{
    struct sti_aio_opts opts = {.queue_depth = 4, .max_open_files = 4};
    const char *const names[] = {"fault", "Uring", ""};
    struct sti_aio *aio;

    (void)state;
    for (size_t at = 0; at < sizeof(names) / sizeof(names[0]); at++) {
        stk_error err = {0};

        opts.method = names[at];
        assert_int_equal(sti_aio_open(&aio, &opts, &err), -EINVAL);
        assert_non_null(strstr(err.message, "auto, uring, sync"));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_falls_back),
        cmocka_unit_test(uring_explains),
        cmocka_unit_test(a_cut_off_ring_is_survived),
        cmocka_unit_test(a_ring_without_threads_is_survived),
        cmocka_unit_test(unknown_methods_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
