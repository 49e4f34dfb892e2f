/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's libgloo-dev (2022-05) leaves out this header, which its gloo/transport/tcp/pair.h
 * includes. Here is as much of it as a class derived from that pair needs: how large its members
 * are. Only where there is no such header (-idirafter). */
#pragma once

#include <memory>

namespace gloo
{

/* A reference of Gloo's own to a buffer that may be gone. */
template <typename T> class WeakNonOwningPtr
{
	std::weak_ptr<T> buffer_;
};

template <typename T> class NonOwningPtr;

} // namespace gloo
