package command

import (
	"context"
	"log/slog"
)

// QuietLibraries has what libraries say by themselves, at slog's default, said by l, and
// only warnings: what is asked of them comes from strangers, who could fill the log.
func QuietLibraries(l *slog.Logger) { slog.SetDefault(slog.New(warnings{l.Handler()})) }

// warnings is a handler of warnings, and what is worse.
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
