/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading UCX and making it behave: its handlers of signals are taken out, it prints
 * nothing, and what it reads of the environment about transports, devices and errors is
 * set over. What a single transport reads for itself (UCX_TCP_..., UCX_RC_...) it still
 * reads, but for the size of TCP's pieces.
 *
 * Threads: any; loading runs once.
 */
#include "comm/ucx_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"

static struct sti_ucx loaded;
static bool is_loaded;
static char load_error[160];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A function pointer out of a data pointer, as dlsym() has it. */
static bool
find(void *library, const char *name, void *ret_function)
{
    void *found = dlsym(library, name);

    if (!found) {
        (void)snprintf(load_error, sizeof(load_error), "it has no %s", name);
        return false;
    }
    memcpy(ret_function, &found, sizeof(found));
    return true;
}

/* Its handlers are put in when it is loaded. */
static void
make_quiet(void *library)
{
    void (*disable_signals)(void);
    ucs_status_t (*set)(const char *name, const char *value);

    if (find(library, "ucs_debug_disable_signals", &disable_signals))
        disable_signals();
    if (find(library, "ucs_global_opts_set_value", &set)) {
        /* A setting that some version does not have changes nothing there. */
        (void)set("LOG_LEVEL", "fatal");
        (void)set("HANDLE_ERRORS", "none");
        (void)set("WARN_UNUSED_ENV_VARS", "n");
        (void)set("MEMTYPE_CACHE", "n"); /* it would hook into the program's allocations */
    }
}

static void
load(void)
{
    sigset_t old;
    void *library;

    sti_thread_block_signals(&old); /* it may start threads */
    library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror(); /* NOLINT(concurrency-mt-unsafe): of this thread */

        (void)snprintf(load_error, sizeof(load_error), "%s", why ? why : "it cannot be loaded");
        goto out;
    }
    make_quiet(library);
#define FIND(name)                           \
    if (!find(library, #name, &loaded.name)) \
        goto out;
    STI_UCX_FUNCTIONS(FIND)
#undef FIND
    is_loaded = true;
out:
    sti_thread_restore_signals(&old);
}

int
sti_ucx_load(const struct sti_ucx **ret_ucx, stk_error *err)
{
    (void)pthread_once(&once, load); /* cannot fail with a control of its own */
    if (!is_loaded)
        return sti_error_set(err, -ENOSYS,
                             "ranks of several processes need UCX, and %s: install it (Debian: "
                             "libucx0)",
                             load_error);
    *ret_ucx = &loaded;
    return 0;
}

int
sti_ucx_configure(const struct sti_ucx *ucx, const char *transports, ucp_config_t **ret_config,
                  stk_error *err)
{
    /* What the environment could say otherwise; "all" and the like are UCX's defaults. */
    static const char *const settings[][2] = {
        {"NET_DEVICES", "all"},
        {"SHM_DEVICES", "all"},
        {"ACC_DEVICES", "all"},
        {"SELF_DEVICES", "all"},
        {"ADDRESS_DEBUG_INFO", "n"},
        {"WARN_INVALID_CONFIG", "n"},
        {"KEEPALIVE_INTERVAL", "10s"},
        {"MEMTYPE_CACHE", "n"},
        {"SOCKADDR_TLS_PRIORITY", "tcp"},
        {"UNIFIED_MODE", "n"},
        {"USE_MT_MUTEX", "n"},
        /* Over TCP a sample of some 100 KB in one piece and not in fourteen: half as fast
         * again. Older versions take a transport's own options without its name. */
        {"TCP_TX_SEG_SIZE", "128K"},
        {"TCP_RX_SEG_SIZE", "128K"},
        {"TX_SEG_SIZE", "128K"},
        {"RX_SEG_SIZE", "128K"},
    };
    ucp_config_t *config;
    ucs_status_t status = ucx->ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return sti_error_set(err, sti_ucx_code(status), "UCX cannot be configured: %s",
                             ucx->ucs_status_string(status));
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        (void)ucx->ucp_config_modify(config, settings[i][0], settings[i][1]); /* if it has it */
    status = ucx->ucp_config_modify(config, "TLS", transports ? transports : "all");
    if (status != UCS_OK) {
        ucx->ucp_config_release(config);
        return sti_error_set(err, -EINVAL, "UCX does not take \"%s\" for its transports: %s",
                             transports ? transports : "all", ucx->ucs_status_string(status));
    }
    *ret_config = config;
    return 0;
}

int
sti_ucx_code(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_ENDPOINT_TIMEOUT:
        return -ETIMEDOUT;
    case UCS_ERR_CANCELED:
        return -ECANCELED;
    case UCS_ERR_UNREACHABLE:
        return -EHOSTUNREACH;
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
        return -ECONNRESET;
    case UCS_ERR_MESSAGE_TRUNCATED:
        return -EMSGSIZE;
    default:
        return -EIO;
    }
}
