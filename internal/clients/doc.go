// Package clients tells the clients of the query API apart, and bounds what each may ask.
//
// A client is an address (of IPv6 the network of 64 bits, which one household has), or the holder
// of a token from the operator's file. A [Gate] stands in front of the API: it names the client of
// every request, also behind proxies that the operator trusts, which are not clients themselves, and answers 429 with Retry-After if
// the client has used up its rate. [Of] gives the name to the code that divides something among
// clients: the queues of queries, forms, subscriptions, and the page's live connections.
package clients
