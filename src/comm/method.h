/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a method has to do: carry messages. A message is a head of up to STI_HEAD_MAX bytes
 * and a body, which stays where it is until the receiver pulls it. What messages mean, who
 * may send them, limits and times are none of its business.
 *
 * One thread owns a link. Callbacks come out of progress alone.
 */
#ifndef STI_COMM_METHOD_H
#define STI_COMM_METHOD_H

#include <stdint.h>

#include "comm/comm.h"
#include "comm/wire.h"

struct sti_link;

/* A message on its way out, in memory of the sender until done. */
struct sti_link_send {
    uint32_t peer;
    uint32_t n_head;
    const void *head;
    const void *body;
    uint64_t n_body;
    /* 0: head and body are the sender's again. Else the message may be lost. */
    void (*done)(struct sti_link_send *send, int code);

    /* The method's. */
    struct sti_link *owner;
    struct sti_link_send *next;
    struct sti_link_send **link;
    int code;
};

/* The body of a message that has arrived; valid during the call that brings it. */
struct sti_link_body {
    uint64_t n_bytes;
    const void *bytes; /* NULL: it still lies at the sender, and has to be pulled */
    void *handle;      /* the method's */
    bool is_taken;     /* the method's: it is being pulled */
};

/* A body on its way in. */
struct sti_link_pull {
    void (*done)(struct sti_link_pull *pull, int code);

    /* The method's. */
    struct sti_link *owner;
    struct sti_link_pull *next;
    struct sti_link_pull **link;
    int code;
};

/* What a link calls. A body that is not taken in the call is dropped, and its sender told that
 * it was sent. */
struct sti_link_events {
    void *context;
    void (*message)(void *context, const void *head, size_t n_head, struct sti_link_body *body);
    void (*lost)(void *context, uint32_t peer, int code);
};

struct sti_link_opts {
    uint32_t rank;
    uint32_t world;
    struct sti_comm_hub *hub;
    const char *transports;
    struct sti_link_events events;
};

struct sti_method {
    const char *name;

    /* Errors: -ENOSYS not here, -ENOMEM, -EMFILE, -EINVAL; err says why. */
    int (*open)(struct sti_link **ret_link, const struct sti_link_opts *opts, stk_error *err);

    /* Lets what is on its way leave for timeout_ns at most; every done is called. */
    void (*close)(struct sti_link *link, uint64_t timeout_ns);

    /* This rank's address, borrowed until closed, for peers. */
    void (*address)(struct sti_link *link, const void **ret_bytes, uint32_t *ret_n_bytes);

    /* Where a peer is; borrowed until closed. Connecting waits for the first message. */
    void (*meet)(struct sti_link *link, uint32_t peer, const void *address, uint32_t n_bytes);

    void (*send)(struct sti_link *link, struct sti_link_send *send);

    /* Brings a body that still lies at the sender. 1: it is there; 0: done will be called; else
     * an error. NULL of a method whose bodies come with their heads. */
    int (*pull)(struct sti_link *link, struct sti_link_body *body, void *into,
                struct sti_link_pull *pull);

    /* Gives a peer up: what goes to it and comes from it ends soon. The next send connects
     * again. */
    void (*drop)(struct sti_link *link, uint32_t peer);

    int (*fd)(const struct sti_link *link);
    int (*arm)(struct sti_link *link);
    /* Whether there was something to do. */
    bool (*progress)(struct sti_link *link);
};

extern const struct sti_method sti_method_local;
extern const struct sti_method sti_method_ucx;

#endif
