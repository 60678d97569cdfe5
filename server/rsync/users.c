#include "server/rsync/users.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "server/sync/rsync/handshake.h"

enum { ANSWER_MAX = 128 };

static int open_users_file(const char *path, FILE **out, struct err *e)
{
    struct stat st;
    FILE *f = fopen(path, "re");

    if (f == NULL || fstat(fileno(f), &st) == -1) {
        int rc = err_sys(e, "%s", path);
        if (f != NULL) {
            fclose(f);
        }
        return rc;
    }
    if ((st.st_mode & (S_IROTH | S_IWOTH)) != 0) {
        fclose(f);
        return err_set(e, E_INVALID,
                       "%s is readable or writable by others; run \"chmod o-rw\" on it", path);
    }
    *out = f;
    return 0;
}

int users_check(const char *path, struct err *e)
{
    FILE *f;
    int rc = open_users_file(path, &f, e);

    if (rc == 0) {
        fclose(f);
    }
    return rc;
}

/* By the length of its digest: what the client chose is what it knows best of those we named. */
static struct slice digest_of_answer(struct slice answer)
{
    switch (answer.n) {
    case 86:
        return SLICE("sha512");
    case 43:
        return SLICE("sha256");
    case 27:
        return SLICE("sha1");
    case 22:
        return SLICE("md5");
    default:
        return SLICE_NONE;
    }
}

static bool proves(struct slice password, struct slice challenge, struct slice answer)
{
    struct slice digest = digest_of_answer(answer);
    struct buf want = BUF_INIT(ANSWER_MAX);
    bool yes = digest.n > 0 && handshake_answer(digest, password, challenge, &want) &&
               want.n == answer.n && CRYPTO_memcmp(want.p, answer.p, answer.n) == 0;

    buf_free(&want);
    return yes;
}

int users_prove(const char *path, struct slice user, struct slice challenge, struct slice answer,
                struct err *e)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    bool found = false;
    bool yes = false;
    FILE *f;
    int rc = open_users_file(path, &f, e);

    if (rc != 0) {
        return rc;
    }
    while (!found && user.n > 0 && (n = getline(&line, &room, f)) > 0) {
        struct slice rest = slice_of(line, (size_t)n);
        struct slice name;
        while (rest.n > 0 && (rest.p[rest.n - 1] == '\n' || rest.p[rest.n - 1] == '\r')) {
            rest.n--;
        }
        name = slice_cut(&rest, ':');
        found = rest.n > 0 && line[0] != '#' && line[0] != '@' && slice_eq(name, user);
        yes = found && proves(rest, challenge, answer);
    }
    if (!found) { /* as much work as for a name that is there */
        (void)!proves(challenge, challenge, answer);
    }
    if (line != NULL) {
        explicit_bzero(line, room);
    }
    free(line);
    fclose(f);
    return yes ? 0 : err_set(e, E_DENIED, "wrong user or password");
}
