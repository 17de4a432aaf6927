/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's port: where it is, and who may come to it. */
#include "comm/meet.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

void
sti_meet_name(int fd, char *text, size_t size)
{
    struct sockaddr_storage address;
    socklen_t n_bytes = sizeof(address);
    char host[64];

    if (getpeername(fd, (struct sockaddr *)&address, &n_bytes) < 0 ||
        getnameinfo((struct sockaddr *)&address, n_bytes, host, sizeof(host), NULL, 0,
                    NI_NUMERICHOST) != 0)
        (void)snprintf(host, sizeof(host), "?");
    (void)snprintf(text, size, "%s", host);
}

static bool
same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)(const void *)a;
    const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)(const void *)b;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)(const void *)a;
    const struct sockaddr_in *b4 = (const struct sockaddr_in *)(const void *)b;

    if (a->sa_family == AF_INET && b->sa_family == AF_INET)
        return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    if (a->sa_family == AF_INET6 && b->sa_family == AF_INET6)
        return memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
    /* The port listens to both families: then an IPv4 address comes in an IPv6 one. */
    if (a->sa_family == AF_INET6 && b->sa_family == AF_INET)
        return IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr) &&
               memcmp(&a6->sin6_addr.s6_addr[12], &b4->sin_addr, 4) == 0;
    return false;
}

static bool
is_of_hosts(const struct sti_comm_opts *opts, const struct sockaddr *from)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    bool is_found = false;

    for (uint32_t i = 0; i < opts->n_hosts && !is_found; i++) {
        struct addrinfo *found;

        if (getaddrinfo(opts->hosts[i], NULL, &hints, &found) != 0)
            continue; /* a name that is not known lets nobody in */
        for (const struct addrinfo *at = found; at && !is_found; at = at->ai_next)
            is_found = same_host(from, at->ai_addr);
        freeaddrinfo(found);
    }
    return is_found;
}

/* Without a secret, the address is all there is to go by. */
bool
sti_meet_may_come(const struct sti_comm_opts *opts, int fd)
{
    struct sockaddr_storage from = {0}, here = {0};
    socklen_t n_from = sizeof(from), n_here = sizeof(here);

    if (opts->secret)
        return true;
    if (getpeername(fd, (struct sockaddr *)&from, &n_from) < 0 ||
        getsockname(fd, (struct sockaddr *)&here, &n_here) < 0)
        return false;
    return same_host((struct sockaddr *)&from, (struct sockaddr *)&here) ||
           is_of_hosts(opts, (struct sockaddr *)&from);
}

int
sti_meet_listen(const struct sti_comm_opts *opts, stk_error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found;
    char port[8];
    int fd = -1, yes = 1, code = EADDRNOTAVAIL;

    (void)snprintf(port, sizeof(port), "%u", opts->port);
    int rc = getaddrinfo(opts->host, port, &hints, &found);
    if (rc != 0)
        return sti_error_set(err, -EHOSTUNREACH, "this rank's address %s is not known: %s",
                             opts->host, gai_strerror(rc));
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
            bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0) {
            code = errno;
            if (fd >= 0)
                (void)close(fd); /* never used */
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        return sti_error_set(err, -code,
                             "rank 0 cannot wait at %s, port %u (%s): name an address of this "
                             "machine and a free port",
                             opts->host, opts->port, sti_error_text(code));
    return fd;
}
