/** The thin bar of a request's layers. */
import type { ContextSummary, Usage } from '../types'
import { useText } from '../i18n'

export const LAYERS = ['base', 'tools', 'bridge', 'history', 'clock', 'task', 'memory', 'question', 'turn'] as const

export function layerColour(layer: string): string {
  return (LAYERS as readonly string[]).includes(layer) ? `var(--layer-${layer})` : 'var(--soft)'
}

export function Bar({ layers, window, label }: { layers: { layer: string; tokens: number }[]; window: number; label: string }) {
  const sum = layers.reduce((total, one) => total + one.tokens, 0)
  const most = Math.max(sum, Math.min(window, sum * 1.15)) || 1
  return (
    <div className="flex h-2 w-full overflow-hidden rounded-sm bg-raised" role="img" aria-label={label}>
      {layers.map((one) => (
        <span key={one.layer} style={{ width: `${(100 * one.tokens) / most}%`, background: layerColour(one.layer) }} />
      ))}
    </div>
  )
}

/** What stands under an answer: tokens, the share that was read from a cache or could be, and a warning. */
export function Strip({ context, usage, onOpen }: { context: ContextSummary; usage: Usage | null; onOpen: () => void }) {
  const t = useText()
  const cached = usage && usage.input_tokens > 0 && usage.cached_tokens > 0 ? usage.cached_tokens / usage.input_tokens : null
  const share = cached === null ? t.stableShare(context.stable_share) : t.cachedShare(cached)
  const partial = context.coverage === 'partial'
  return (
    <button
      type="button"
      onClick={onOpen}
      className="flex min-h-7 w-full items-center gap-2 rounded-md px-1 text-xs text-soft hover:bg-raised hover:text-ink"
      aria-label={`${t.openContext}: ${t.tokens(context.tokens)}, ${share}${partial ? ', ' + t.partialShort : ''}`}
    >
      <span className="w-28 shrink-0">
        <Bar layers={context.layers} window={context.window} label={t.layersOf(context.layers)} />
      </span>
      <span>{t.tokens(context.tokens)}</span>
      <span aria-hidden>·</span>
      <span>{share}</span>
      {partial && <span className="text-warn">· {t.partialShort}</span>}
    </button>
  )
}
