package command

import (
	"context"
	"log/slog"
)

// QuietLibraries sends what libraries log to slog's default logger to l, warnings and errors
// only: strangers cause what libraries do, and could fill the log.
func QuietLibraries(l *slog.Logger) { slog.SetDefault(slog.New(warnings{l.Handler()})) }

// warnings is a handler that drops everything below a warning.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
