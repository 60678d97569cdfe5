/* curl.c - what common/xfer calls of libcurl, forwarded (lazy.h). */
#include <curl/curl.h>
#include <stdarg.h>

#include "agent/lazy/lazy.h"

/* The header wraps these in checks of types, which their callers have had. */
#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

static struct lazy_library curl = {.file = "libcurl.so.4", .package = "libcurl4"};

LAZY(curl, CURLcode, curl_global_init, (long flags), (flags))
LAZY(curl, CURL *, curl_easy_init, (void), ())
LAZY(curl, void, curl_easy_cleanup, (CURL * h), (h))
LAZY(curl, CURLcode, curl_easy_pause, (CURL * h, int what), (h, what))
LAZY(curl, const char *, curl_easy_strerror, (CURLcode code), (code))
LAZY(curl, CURLM *, curl_multi_init, (void), ())
LAZY(curl, CURLMcode, curl_multi_cleanup, (CURLM * m), (m))
LAZY(curl, CURLMcode, curl_multi_add_handle, (CURLM * m, CURL *h), (m, h))
LAZY(curl, CURLMcode, curl_multi_remove_handle, (CURLM * m, CURL *h), (m, h))
LAZY(curl, CURLMcode, curl_multi_assign, (CURLM * m, curl_socket_t fd, void *arg), (m, fd, arg))
LAZY(curl, CURLMsg *, curl_multi_info_read, (CURLM * m, int *left), (m, left))
LAZY(curl, CURLMcode, curl_multi_socket_action, (CURLM * m, curl_socket_t fd, int ev, int *running),
     (m, fd, ev, running))
LAZY(curl, struct curl_slist *, curl_slist_append, (struct curl_slist * l, const char *line),
     (l, line))
LAZY(curl, void, curl_slist_free_all, (struct curl_slist * l), (l))

/* One argument of unknown type: a long, a curl_off_t or a pointer, which pass in the same way where
 * all three have 64 bits. */
_Static_assert(sizeof(long) == sizeof(void *) && sizeof(curl_off_t) == sizeof(void *),
               "needs LP64");

#define LAZY_OPTION(ret, name, of, option)                                                         \
    ret name(of h, option what, ...)                                                               \
    {                                                                                              \
        static _Atomic(void *) kept;                                                               \
        ret (*call)(of, option, ...);                                                              \
        va_list rest;                                                                              \
        void *value;                                                                               \
                                                                                                   \
        va_start(rest, what);                                                                      \
        value = va_arg(rest, void *);                                                              \
        va_end(rest);                                                                              \
        *(void **)(void *)&call = lazy_kept(&curl, &kept, #name);                                  \
        return call(h, what, value);                                                               \
    }

LAZY_OPTION(CURLcode, curl_easy_setopt, CURL *, CURLoption)
LAZY_OPTION(CURLcode, curl_easy_getinfo, CURL *, CURLINFO)
LAZY_OPTION(CURLMcode, curl_multi_setopt, CURLM *, CURLMoption)
