package xrpc

import (
	"fmt"
	"net/http"
)

// An Error is an XRPC error for the client.
type Error struct {
	Status  int    // of the HTTP response
	Name    string // identifies the error to programs, such as InvalidRequest
	Message string // explains it to people
}

// Error implements error.
func (e *Error) Error() string { return e.Name + ": " + e.Message }

// Errorf returns an Error with a formatted message.
func Errorf(status int, name, format string, args ...any) *Error {
	return &Error{status, name, fmt.Sprintf(format, args...)}
}

// Invalid returns the Error of a request that the client must correct.
func Invalid(format string, args ...any) error {
	return Errorf(http.StatusBadRequest, "InvalidRequest", format, args...)
}
