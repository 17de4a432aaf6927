/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes ucx_perftest send out of, and receive into, as much memory as WALK_BYTES says, piece after
 * piece, in place of one message's: samples lie in a data set, and not in a processor's cache.
 * To be loaded before libucp (LD_PRELOAD). One thread.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#define LEAST_BYTES 4096u /* what is shorter is the benchmark's own talk */

typedef ucs_status_ptr_t (*send_fn)(ucp_ep_h ep, unsigned id, const void *header,
                                    size_t header_length, const void *buffer, size_t count,
                                    const ucp_request_param_t *param);
typedef ucs_status_ptr_t (*receive_fn)(ucp_worker_h worker, void *data_desc, void *buffer,
                                       size_t count, const ucp_request_param_t *param);

static char *area;
static size_t area_bytes;
static size_t at;

static void
die(const char *what)
{
    (void)fprintf(stderr, "ucx_walk: %s\n", what);
    _exit(1);
}

/* UCX's own of the name. */
static void *
real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (!found)
        die(name);
    return found;
}

static void *
next_piece(size_t n_bytes)
{
    if (!area) {
        const char *asked = getenv("WALK_BYTES");

        area_bytes = asked ? strtoull(asked, NULL, 10) : 0;
        area = mmap(NULL, area_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area_bytes < n_bytes || area == MAP_FAILED)
            die("WALK_BYTES is missing, too little or too much");
        (void)madvise(area, area_bytes, MADV_HUGEPAGE); /* as the memory of a store; or not */
        memset(area, 1, area_bytes);
    }
    if (n_bytes > area_bytes - at)
        at = 0;
    at += n_bytes;
    return area + at - n_bytes;
}

ucs_status_ptr_t
ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                const void *buffer, size_t count, const ucp_request_param_t *param)
{
    static send_fn send;

    if (!send)
        *(void **)&send = real("ucp_am_send_nbx");
    return send(ep, id, header, header_length, count < LEAST_BYTES ? buffer : next_piece(count),
                count, param);
}

ucs_status_ptr_t
ucp_am_recv_data_nbx(ucp_worker_h worker, void *data_desc, void *buffer, size_t count,
                     const ucp_request_param_t *param)
{
    static receive_fn receive;

    if (!receive)
        *(void **)&receive = real("ucp_am_recv_data_nbx");
    return receive(worker, data_desc, count < LEAST_BYTES ? buffer : next_piece(count), count,
                   param);
}
