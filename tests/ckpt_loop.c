/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For scripts that kill, fill and break:
 *
 *     ckpt_loop save DIR METHOD N BYTES [ROOT...]
 *         saves N steps from the newest on and says "durable STEP" when each is; a failure is
 *         said and gone on from. METHOD "refused": the method is chosen where the kernel
 *         refuses io_uring, as in a container
 *     ckpt_loop check DIR LEAST
 *         loads the newest and compares it with what its step must be; fails below step LEAST
 *         (-1: there may be none)
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <stoker/stoker.h>

#define N_TENSORS 3

static uint64_t n_bytes[N_TENSORS];
static unsigned char *data[N_TENSORS];
static const char *const names[N_TENSORS] = {"a", "b", "c"};

static void
make(uint64_t bytes)
{
    n_bytes[0] = bytes / 2;
    n_bytes[1] = 1 + bytes / 3;
    n_bytes[2] = 13;
    for (uint32_t at = 0; at < N_TENSORS; at++) {
        data[at] = malloc(n_bytes[at] + 8);
        if (!data[at])
            exit(2);
    }
}

static void
fill(uint64_t step)
{
    for (uint32_t at = 0; at < N_TENSORS; at++)
        for (uint64_t byte = 0; byte < n_bytes[at]; byte += 8) {
            uint64_t word = (byte + 1) * UINT64_C(0x9e3779b97f4a7c15) + step * 77 + at;

            memcpy(data[at] + byte, &word, 8);
        }
}

static int
say(const char *what, const stk_error *err)
{
    (void)printf("%s: %s: %s (%s)\n", what, err->path, err->message, stk_strerror(err->code));
    (void)fflush(stdout);
    return 1;
}

static int
save_all(stk_ckpt *ckpt, uint64_t first, uint64_t n)
{
    int failed = 0;

    for (uint64_t step = first; step < first + n; step++) {
        stk_tensor tensors[N_TENSORS];
        stk_error err;

        fill(step);
        for (uint32_t at = 0; at < N_TENSORS; at++)
            tensors[at] = (stk_tensor){.name = names[at],
                                       .dtype = "U8",
                                       .shape = &n_bytes[at],
                                       .dims = 1,
                                       .data = data[at],
                                       .flags = STK_TENSOR_STABLE};
        int rc = stk_ckpt_save(
            ckpt,
            &(stk_save){STK_SAVE_INIT, .step = step, .tensors = tensors, .n_tensors = N_TENSORS},
            &err);
        if (rc == 0)
            rc = stk_ckpt_wait(ckpt, STK_DURABLE_LOCAL, STK_FOREVER, &err);
        if (rc < 0) {
            failed = say("failed", &err);
            continue;
        }
        (void)printf("durable %" PRIu64 "\n", step);
        (void)fflush(stdout);
    }
    return failed;
}

static int
save(stk_engine *engine, int argc, char **argv)
{
    static char roots[4096];
    size_t used = 0;
    stk_ckpt *ckpt;
    stk_error err;
    uint64_t step = 0;

    for (int at = 6; at < argc; at++)
        used += (size_t)snprintf(roots + used, sizeof(roots) - used, " %s", argv[at]);
    make(strtoull(argv[5], NULL, 10));
    int rc = stk_ckpt_open(
        &ckpt, engine, argv[2],
        &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .roots = roots, .slot_bytes = 1 << 20}, &err);
    if (rc < 0)
        return say("open", &err);
    rc = stk_ckpt_latest(ckpt, &step, &err);
    rc = save_all(ckpt, rc < 0 ? 0 : step + 1, strtoull(argv[4], NULL, 10));
    stk_ckpt_close(ckpt);
    return rc;
}

static int
is_right(stk_view *view, uint64_t step)
{
    unsigned char *expected[N_TENSORS];
    stk_view_tensor tensor;
    stk_load loads[N_TENSORS];
    stk_error err;
    int same = 1;

    if (stk_view_tensor_find(view, "a", &tensor) < 0)
        return 0;
    make(tensor.n_bytes * 2);
    fill(step);
    for (uint32_t at = 0; at < N_TENSORS; at++) {
        if (stk_view_tensor_find(view, names[at], &tensor) < 0)
            return 0;
        expected[at] = data[at];
        loads[at] = (stk_load){
            .name = names[at], .dst = malloc(tensor.n_bytes + 8), .n_bytes = tensor.n_bytes};
    }
    if (stk_view_load(view, loads, N_TENSORS, &err) < 0)
        return !say("load", &err);
    for (uint32_t at = 0; at < N_TENSORS; at++) {
        /* The sizes of "b" and "c" come from "a", which halving may have rounded. */
        same &= loads[at].n_bytes <= n_bytes[at] + 1 &&
                memcmp(expected[at], loads[at].dst, loads[at].n_bytes - 1) == 0;
        free(loads[at].dst);
    }
    return same;
}

static int
check(stk_engine *engine, char **argv)
{
    const int64_t least = strtoll(argv[3], NULL, 10);
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_ckpt *ckpt;
    stk_view *view;
    stk_error err;

    if (stk_ckpt_open(&ckpt, engine, argv[2], &(stk_ckpt_opts){STK_CKPT_OPTS_INIT, .read_only = 1},
                      &err) < 0)
        return say("open", &err);
    int rc = stk_view_open(&view, ckpt, STK_LATEST, &err);
    if (rc < 0) {
        stk_ckpt_close(ckpt);
        return err.code == -2 && least < 0 ? 0 : say("latest", &err);
    }
    if (rc > 0)
        (void)say("passed over", &err);
    (void)stk_view_get_info(view, &info);
    int is_good = rc == 0 && (int64_t)info.step >= least && is_right(view, info.step);
    (void)printf("step %" PRIu64 " is %s\n", info.step, is_good ? "right" : "WRONG");
    stk_view_close(view);
    stk_ckpt_close(ckpt);
    return !is_good;
}

/* From here on the kernel refuses io_uring to this process. */
static int
refuse_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int
main(int argc, char **argv)
{
    stk_engine *engine;
    stk_error err;
    int is_save = argc >= 6 && strcmp(argv[1], "save") == 0;

    if (!is_save && (argc != 4 || strcmp(argv[1], "check") != 0))
        return 2;
    const char *method = is_save ? argv[3] : NULL;
    if (method && strcmp(method, "refused") == 0) {
        if (!refuse_uring())
            return 2;
        method = NULL;
    }
    if (stk_engine_open(&engine, &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .io_method = method},
                        &err) < 0)
        return say("engine", &err);
    int rc = is_save ? save(engine, argc, argv) : check(engine, argv);
    stk_engine_close(engine);
    return rc;
}
