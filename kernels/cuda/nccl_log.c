#include "kernels/cuda/nccl_log.h"

#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.h"

enum { READ_MAX = 4 << 20, VIAS = 3, VIA_BYTES = 24 };

static int log_fd = -1;

void nccl_log_begin(void)
{
    char path[64];

    if (log_fd != -1 || getenv("NCCL_DEBUG") != NULL || getenv("NCCL_DEBUG_FILE") != NULL) {
        return;
    }
    log_fd = memfd_create("nccl-log", MFD_CLOEXEC);
    if (log_fd != -1) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", log_fd);
        setenv("NCCL_DEBUG_FILE", path, 1);
        setenv("NCCL_DEBUG", "INFO", 1);
        setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,NET", 0);
    }
}

/* The log so far, or its end; NULL without one. To be freed. */
static char *read_log(void)
{
    struct stat st;
    char *text;
    off_t from;
    ssize_t n;

    if (log_fd == -1 || fstat(log_fd, &st) == -1) {
        return NULL;
    }
    from = st.st_size > READ_MAX ? st.st_size - READ_MAX : 0;
    text = calloc(1, READ_MAX + 1);
    if (text == NULL) {
        return NULL;
    }
    n = pread(log_fd, text, READ_MAX, from);
    if (n <= 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Up to the next space or the line's end. */
static void word_at(const char *p, char *out, size_t room)
{
    snprintf(out, room, "%.*s", (int)strcspn(p, " \n"), p);
}

/* "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM": each kind once. */
static void add_transports(const char *text, char *out, size_t room)
{
    char seen[VIAS][VIA_BYTES], via[VIA_BYTES];
    int n = 0;

    for (const char *p = text; n < VIAS && (p = strstr(p, " via ")) != NULL;) {
        bool is_new = true;

        p += strlen(" via ");
        word_at(p, via, sizeof via);
        for (int i = 0; i < n; i++) {
            is_new = is_new && strcmp(seen[i], via) != 0;
        }
        if (is_new) {
            memcpy(seen[n], via, sizeof via);
            text_addf(out, room, "%s%s", n == 0 ? ", via " : " ", via);
            n++;
        }
    }
}

/* The number before `what`: "24 coll channels". */
static int count_of(const char *text, const char *what)
{
    const char *at = strstr(text, what), *p = at;

    while (p != NULL && p > text && p[-1] >= '0' && p[-1] <= '9') {
        p--;
    }
    return p == at ? 0 : atoi(p);
}

int nccl_log_version(char *out, size_t room)
{
    int version = 0;

    (void)ncclGetVersion(&version);
    snprintf(out, room, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return version;
}

void nccl_log_facts(char *out, size_t room)
{
    const char *p;
    char word[32], *text;

    (void)nccl_log_version(word, sizeof word);
    snprintf(out, room, "NCCL %s", word);
    text = read_log();
    if (text == NULL) {
        return;
    }
    p = strstr(text, "Using network ");
    if (p != NULL) {
        word_at(p + strlen("Using network "), word, sizeof word);
        text_addf(out, room, ", network %s", word);
    }
    add_transports(text, out, room);
    if (count_of(text, " coll channels") > 0) {
        text_addf(out, room, ", %d channels", count_of(text, " coll channels"));
    }
    if (count_of(text, " nvls channels") > 0) {
        text_addf(out, room, ", NVLS %d", count_of(text, " nvls channels"));
    }
    free(text);
}

void nccl_log_warning(char *out, size_t room)
{
    char *text = read_log(), *last = NULL;

    out[0] = '\0';
    for (char *p = text; p != NULL && (p = strstr(p, "NCCL WARN ")) != NULL;) {
        p += strlen("NCCL WARN ");
        last = p;
    }
    if (last != NULL) {
        snprintf(out, room, "%.*s", (int)strcspn(last, "\n"), last);
    }
    free(text);
}
