/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages over UCX: a head is an active message's header, a body its data. Small bodies
 * come with the head; large ones stay at the sender until the receiver pulls them (UCX's
 * rendezvous), by whatever the two machines have in common: shared memory, RDMA, TCP.
 *
 * UCX calls back from the inside of its progress. Only what has arrived is handed on from
 * there, because its memory is gone afterwards; all else that ends is put into a list and
 * told when UCX has returned, and endpoints are made and closed outside of it only.
 *
 * An endpoint that fails is closed by force, which ends what is on its way with an error,
 * and a new one is made for the next message. Invariant: a send or a pull is in exactly
 * one list, under way or ended, until its done is called.
 */
#include "comm/method.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/ucx_load.h"

#define MESSAGE_ID 0u
#define FORCE_NS (2 * STI_NS_PER_S) /* for what is under way when its endpoint is closed by force */
#define FLUSH_NS (STI_NS_PER_S / 10) /* for the last bytes to leave; a peer may be stopped */
#define PROGRESS_MAX 256             /* calls of UCX's progress before others have a turn */

struct endpoint {
    struct sti_link *link;
    ucp_ep_h ep; /* NULL: not connected */
    const void *address;
    uint32_t n_address;
    uint32_t n_out;
    int failed; /* UCX has told of an error, which is to be told on */
    bool is_in_failed;
    struct endpoint *next_failed;
};

/* An endpoint that is being closed, until UCX says that it is. */
struct closing {
    void *request;
    struct closing *next;
};

struct sti_link {
    const struct sti_ucx *ucx;
    uint32_t rank;
    uint32_t world;
    int fd;
    struct sti_link_events events;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t n_address;
    struct endpoint *peers;
    struct endpoint *failed;
    struct closing *closing;
    struct sti_link_send *sending; /* under way in UCX */
    struct sti_link_send *later;   /* to be handed to UCX outside of its progress */
    struct sti_link_send **later_end;
    struct sti_link_send *sent; /* done is to be called */
    struct sti_link_send **sent_end;
    struct sti_link_pull *pulling;
    struct sti_link_pull *pulled;
    bool is_inside; /* of UCX's progress */
};

/* ---- what ends ---- */

static void
end_send(struct sti_link *link, struct sti_link_send *send, int code)
{
    send->code = code;
    send->next = NULL;
    *link->sent_end = send;
    link->sent_end = &send->next;
}

static void
begin_sending(struct sti_link *link, struct sti_link_send *send)
{
    link->peers[send->peer].n_out++;
    send->next = link->sending;
    send->link = &link->sending;
    if (send->next)
        send->next->link = &send->next;
    link->sending = send;
}

static void
stop_sending(struct sti_link *link, struct sti_link_send *send, int code)
{
    link->peers[send->peer].n_out--;
    *send->link = send->next;
    if (send->next)
        send->next->link = send->link;
    end_send(link, send, code);
}

static void
send_done(void *request, ucs_status_t status, void *user_data)
{
    struct sti_link_send *send = user_data;
    struct sti_link *link = send->owner;

    link->ucx->ucp_request_free(request);
    stop_sending(link, send, sti_ucx_code(status));
}

static void
stop_pulling(struct sti_link_pull *pull, int code)
{
    struct sti_link *link = pull->owner;

    *pull->link = pull->next;
    if (pull->next)
        pull->next->link = pull->link;
    pull->code = code;
    pull->next = link->pulled;
    link->pulled = pull;
}

static void
pull_done(void *request, ucs_status_t status, size_t length, void *user_data)
{
    struct sti_link_pull *pull = user_data;

    (void)length; /* that of the message, which was checked */
    pull->owner->ucx->ucp_request_free(request);
    stop_pulling(pull, sti_ucx_code(status));
}

static bool
run_ended(struct sti_link *link)
{
    struct sti_link_send *sent = link->sent;
    struct sti_link_pull *pulled = link->pulled;
    bool is_busy = sent || pulled;

    link->sent = NULL;
    link->sent_end = &link->sent;
    link->pulled = NULL;
    for (struct sti_link_send *next; sent; sent = next) {
        next = sent->next;
        sent->done(sent, sent->code);
    }
    for (struct sti_link_pull *next; pulled; pulled = next) {
        next = pulled->next;
        pulled->done(pulled, pulled->code);
    }
    return is_busy;
}

/* ---- endpoints ---- */

static void
endpoint_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct endpoint *peer = arg;
    struct sti_link *link = peer->link;

    if (ep != peer->ep || peer->is_in_failed)
        return; /* one that is being closed */
    peer->failed = sti_ucx_code(status);
    peer->is_in_failed = true;
    peer->next_failed = link->failed;
    link->failed = peer;
}

static int
connect_endpoint(struct endpoint *peer)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = endpoint_failed, .arg = peer},
    };

    if (peer->ep)
        return 0;
    ucs_status_t status = peer->link->ucx->ucp_ep_create(peer->link->worker, &params, &peer->ep);
    if (status != UCS_OK)
        peer->ep = NULL;
    return sti_ucx_code(status);
}

/* Closes an endpoint; how: 0 after what is on its way, or UCP_EP_CLOSE_FLAG_FORCE. */
static void
close_endpoint(struct endpoint *peer, uint32_t how)
{
    struct sti_link *link = peer->link;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = how};
    ucp_ep_h ep = peer->ep;

    if (!ep)
        return;
    peer->ep = NULL;
    void *request = link->ucx->ucp_ep_close_nbx(ep, &param);
    if (!request || UCS_PTR_IS_ERR(request))
        return; /* closed */
    struct closing *closing = sti_mem_new(1, sizeof(*closing));
    if (!closing) { /* then it is not waited for: UCX frees it when it is done */
        link->ucx->ucp_request_free(request);
        return;
    }
    closing->request = request;
    closing->next = link->closing;
    link->closing = closing;
}

static void
check_closing(struct sti_link *link)
{
    for (struct closing **at = &link->closing; *at;) {
        struct closing *closing = *at;

        if (link->ucx->ucp_request_check_status(closing->request) == UCS_INPROGRESS) {
            at = &closing->next;
            continue;
        }
        link->ucx->ucp_request_free(closing->request);
        *at = closing->next;
        sti_mem_free(closing);
    }
}

static bool
run_failed(struct sti_link *link)
{
    struct endpoint *failed = link->failed;
    bool is_busy = failed != NULL;

    link->failed = NULL;
    for (struct endpoint *next; failed; failed = next) {
        next = failed->next_failed;
        failed->is_in_failed = false;
        close_endpoint(failed, UCP_EP_CLOSE_FLAG_FORCE);
        link->events.lost(link->events.context, (uint32_t)(failed - link->peers),
                          failed->failed < 0 ? failed->failed : -ECONNRESET);
    }
    return is_busy;
}

/* ---- messages ---- */

static ucs_status_t
arrived(void *arg, const void *header, size_t header_length, void *data, size_t length,
        const ucp_am_recv_param_t *param)
{
    struct sti_link *link = arg;
    bool is_there = !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    struct sti_link_body body = {
        .n_bytes = length,
        .bytes = is_there ? data : NULL,
        .handle = data,
    };

    link->events.message(link->events.context, header, header_length, &body);
    return body.is_taken ? UCS_INPROGRESS : UCS_OK;
}

static int
ucx_pull(struct sti_link *link, struct sti_link_body *body, void *into, struct sti_link_pull *pull)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = pull_done,
        .user_data = pull,
    };

    pull->owner = link;
    pull->next = link->pulling;
    pull->link = &link->pulling;
    if (pull->next)
        pull->next->link = &pull->next;
    link->pulling = pull;
    void *request =
        link->ucx->ucp_am_recv_data_nbx(link->worker, body->handle, into, body->n_bytes, &param);
    body->is_taken = !UCS_PTR_IS_ERR(request);
    if (request && !UCS_PTR_IS_ERR(request))
        return 0;
    link->pulling = pull->next;
    if (pull->next)
        pull->next->link = &link->pulling;
    return request ? sti_ucx_code(UCS_PTR_STATUS(request)) : 1;
}

static void
hand_to_ucx(struct sti_link *link, struct sti_link_send *send)
{
    struct endpoint *peer = &link->peers[send->peer];
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = send_done,
        .user_data = send,
    };
    int rc = peer->is_in_failed ? peer->failed : connect_endpoint(peer);

    if (rc < 0) {
        end_send(link, send, rc);
        return;
    }
    send->owner = link;
    begin_sending(link, send);
    void *request = link->ucx->ucp_am_send_nbx(peer->ep, MESSAGE_ID, send->head, send->n_head,
                                               send->body, send->n_body, &param);
    if (!request)
        stop_sending(link, send, 0);
    else if (UCS_PTR_IS_ERR(request))
        stop_sending(link, send, sti_ucx_code(UCS_PTR_STATUS(request)));
}

static void
ucx_send(struct sti_link *link, struct sti_link_send *send)
{
    if (!link->is_inside || (link->peers[send->peer].ep && !link->later)) {
        hand_to_ucx(link, send);
        return;
    }
    send->next = NULL;
    *link->later_end = send;
    link->later_end = &send->next;
}

static void
run_later(struct sti_link *link)
{
    struct sti_link_send *later = link->later;

    link->later = NULL;
    link->later_end = &link->later;
    for (struct sti_link_send *next; later; later = next) {
        next = later->next;
        hand_to_ucx(link, later);
    }
}

/*
 * What has ended is told after each call: who is told makes room for what comes next, and
 * a peer that asks fast would find none otherwise.
 */
static bool
ucx_progress(struct sti_link *link)
{
    bool is_busy = false, has_more = true;

    for (int i = 0; i < PROGRESS_MAX && has_more; i++) {
        link->is_inside = true;
        has_more = link->ucx->ucp_worker_progress(link->worker) > 0;
        link->is_inside = false;
        run_later(link);
        is_busy = run_failed(link) || is_busy || has_more;
        if (link->closing)
            check_closing(link);
        is_busy = run_ended(link) || is_busy;
    }
    return is_busy;
}

static void
ucx_drop(struct sti_link *link, uint32_t peer)
{
    close_endpoint(&link->peers[peer], UCP_EP_CLOSE_FLAG_FORCE);
}

static int
ucx_fd(const struct sti_link *link)
{
    return link->fd;
}

static int
ucx_arm(struct sti_link *link)
{
    if (link->sent || link->pulled || link->failed || link->later)
        return -EBUSY;
    ucs_status_t status = link->ucx->ucp_worker_arm(link->worker);
    return status == UCS_OK ? 0 : status == UCS_ERR_BUSY ? -EBUSY : sti_ucx_code(status);
}

/* ---- life ---- */

static void
ucx_address(struct sti_link *link, const void **ret_bytes, uint32_t *ret_n_bytes)
{
    *ret_bytes = link->address;
    *ret_n_bytes = (uint32_t)link->n_address;
}

static void
ucx_meet(struct sti_link *link, uint32_t peer, const void *address, uint32_t n_bytes)
{
    link->peers[peer].address = address;
    link->peers[peer].n_address = n_bytes;
}

static int
open_context(struct sti_link *link, const struct sti_link_opts *opts, stk_error *err)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = opts->world,
    };
    ucp_config_t *config;
    int rc = sti_ucx_configure(link->ucx, opts->transports, &config, err);

    if (rc < 0)
        return rc;
    ucs_status_t status =
        link->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &link->context);
    link->ucx->ucp_config_release(config);
    if (status != UCS_OK)
        return sti_error_set(
            err, sti_ucx_code(status), "UCX cannot use any of its transports here (%s): %s",
            opts->transports ? opts->transports : "all", link->ucx->ucs_status_string(status));
    return 0;
}

static ucs_status_t
set_up_worker(struct sti_link *link, ucp_worker_attr_t *attr)
{
    const struct sti_ucx *ucx = link->ucx;
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = MESSAGE_ID,
        .cb = arrived,
        .arg = link,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
    };
    ucs_status_t status = ucx->ucp_worker_query(link->worker, attr);

    if (status == UCS_OK)
        status = ucx->ucp_worker_set_am_recv_handler(link->worker, &handler);
    if (status == UCS_OK)
        status = ucx->ucp_worker_get_address(link->worker, &link->address, &link->n_address);
    if (status == UCS_OK)
        status = ucx->ucp_worker_get_efd(link->worker, &link->fd);
    return status;
}

static int
open_worker(struct sti_link *link, stk_error *err)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED, /* opened here, used by the owner */
    };
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucs_status_t status = link->ucx->ucp_worker_create(link->context, &params, &link->worker);

    if (status == UCS_OK)
        status = set_up_worker(link, &attr);
    if (status != UCS_OK)
        return sti_error_set(err, sti_ucx_code(status), "UCX cannot begin: %s",
                             link->ucx->ucs_status_string(status));
    if (attr.max_am_header < STI_HEAD_MAX)
        return sti_error_set(err, -ENOSYS,
                             "UCX carries heads of %zu bytes on these transports, and %u are "
                             "needed",
                             attr.max_am_header, STI_HEAD_MAX);
    return 0;
}

/* What has been made of a link, which may be half of it. */
static void
free_link(struct sti_link *link)
{
    const struct sti_ucx *ucx = link->ucx;

    if (link->address)
        ucx->ucp_worker_release_address(link->worker, link->address);
    if (link->worker)
        ucx->ucp_worker_destroy(link->worker);
    if (link->context)
        ucx->ucp_cleanup(link->context);
    sti_mem_free(link->peers);
    sti_mem_free(link);
}

static int
ucx_open(struct sti_link **ret_link, const struct sti_link_opts *opts, stk_error *err)
{
    const struct sti_ucx *ucx;
    struct sti_link *link;
    sigset_t old;
    int rc = sti_ucx_load(&ucx, err);

    if (rc < 0)
        return rc;
    link = sti_mem_new(1, sizeof(*link));
    if (!link)
        return sti_error_set(err, -ENOMEM, "no memory for connections to %u ranks", opts->world);
    link->ucx = ucx;
    link->rank = opts->rank;
    link->world = opts->world;
    link->fd = -1;
    link->events = opts->events;
    link->later_end = &link->later;
    link->sent_end = &link->sent;
    link->peers = sti_mem_new(opts->world, sizeof(struct endpoint));
    if (!link->peers) {
        rc = sti_error_set(err, -ENOMEM, "no memory for connections to %u ranks", opts->world);
    } else {
        for (uint32_t peer = 0; peer < opts->world; peer++)
            link->peers[peer].link = link;
        sti_thread_block_signals(&old); /* UCX starts a thread */
        rc = open_context(link, opts, err);
        if (rc == 0)
            rc = open_worker(link, err);
        sti_thread_restore_signals(&old);
    }
    if (rc < 0) {
        free_link(link);
        return rc;
    }
    *ret_link = link;
    return 0;
}

/* Progress until nothing is under way, or a time is over; sleeps in between. */
static void
settle(struct sti_link *link, uint64_t until_ns)
{
    while (link->sending || link->pulling || link->closing || link->later) {
        struct pollfd poll_fd = {.fd = link->fd, .events = POLLIN};

        if (ucx_progress(link))
            continue;
        if (sti_clock_ns() >= until_ns)
            return;
        if (ucx_arm(link) == 0)
            (void)poll(&poll_fd, 1, 10); /* a pause; it may be short */
    }
}

static void
ucx_close(struct sti_link *link, uint64_t timeout_ns)
{
    uint64_t until_ns = sti_clock_ns() + timeout_ns;

    settle(link, until_ns);
    for (uint32_t peer = 0; peer < link->world; peer++)
        close_endpoint(&link->peers[peer], link->peers[peer].n_out > 0 || timeout_ns == 0
                                               ? UCP_EP_CLOSE_FLAG_FORCE
                                               : 0);
    settle(link, sti_clock_ns() + (link->sending || link->pulling ? FORCE_NS : FLUSH_NS));
    for (struct closing *closing = link->closing, *next; closing; closing = next) {
        next = closing->next;
        link->ucx->ucp_request_free(closing->request);
        sti_mem_free(closing);
    }
    link->closing = NULL;
    /* Without its worker UCX writes nowhere any more. */
    link->ucx->ucp_worker_release_address(link->worker, link->address);
    link->address = NULL;
    link->ucx->ucp_worker_destroy(link->worker);
    link->worker = NULL;
    while (link->sending)
        stop_sending(link, link->sending, -ECANCELED);
    while (link->pulling)
        stop_pulling(link->pulling, -ECANCELED);
    (void)run_ended(link); /* the last of them */
    free_link(link);
}

const struct sti_method sti_method_ucx = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .address = ucx_address,
    .meet = ucx_meet,
    .send = ucx_send,
    .pull = ucx_pull,
    .drop = ucx_drop,
    .fd = ucx_fd,
    .arm = ucx_arm,
    .progress = ucx_progress,
};
