/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UCX, loaded when it is first asked for. Linked in, it would install signal handlers and
 * replace sigaction() in every program that loads this library, ranks or not; loaded with
 * its names kept to itself, it replaces nothing, and its handlers are taken out at once.
 * So that a program that needs no ranks needs no UCX, too.
 */
#ifndef STI_COMM_UCX_LOAD_H
#define STI_COMM_UCX_LOAD_H

#include <ucp/api/ucp.h>
#include <ucs/type/status.h>

#include <stoker/types.h>

/* A function of UCX and, in the table, a pointer of its name and type. */
#define STI_UCX_FUNCTIONS(X)          \
    X(ucp_get_version)                \
    X(ucp_config_read)                \
    X(ucp_config_modify)              \
    X(ucp_config_release)             \
    X(ucp_init_version)               \
    X(ucp_cleanup)                    \
    X(ucp_worker_create)              \
    X(ucp_worker_destroy)             \
    X(ucp_worker_query)               \
    X(ucp_worker_get_address)         \
    X(ucp_worker_release_address)     \
    X(ucp_worker_get_efd)             \
    X(ucp_worker_arm)                 \
    X(ucp_worker_progress)            \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_am_send_nbx)                \
    X(ucp_am_recv_data_nbx)           \
    X(ucp_request_free)               \
    X(ucp_request_check_status)       \
    X(ucs_status_string)

struct sti_ucx {
#define STI_UCX_POINTER(name) __typeof__(&(name)) name; /* NOLINT(bugprone-macro-parentheses) */
    STI_UCX_FUNCTIONS(STI_UCX_POINTER)
#undef STI_UCX_POINTER
};

/*
 * The library, loaded once for the process and never unloaded. Errors: -ENOSYS, and err
 * says what to install. ret_ucx: borrowed for ever. Any thread.
 */
int
sti_ucx_load(const struct sti_ucx **ret_ucx, stk_error *err);

/* A configuration that is ours and not the environment's. transports: NULL for all.
 * Errors: -EINVAL a transport that UCX does not know, -ENOMEM. */
int
sti_ucx_configure(const struct sti_ucx *ucx, const char *transports, ucp_config_t **ret_config,
                  stk_error *err);

/* A status as a code of errno. */
int
sti_ucx_code(ucs_status_t status);

#endif
