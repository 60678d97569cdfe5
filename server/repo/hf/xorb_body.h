/* xorb_body.h - a file in Xet's chunk framing (xorb.h), made of a body that gives the file's own bytes. */
#ifndef SERVER_REPO_HF_XORB_BODY_H
#define SERVER_REPO_HF_XORB_BODY_H

#include "server/repo/repo.h"

extern const struct framing xorb_framing;

#endif
