/** The address bar: `/w/{workspace}/t/{thread}?panel=context&turn=14`. */
import { useSyncExternalStore } from 'react'

export type Panel = 'context' | 'task' | 'memory' | 'files'

export interface Route {
  workspace: string
  thread: string
  panel: Panel | ''
  turn: number | null
  record: number | null
}

const PANELS: readonly string[] = ['context', 'task', 'memory', 'files']

export function parse(address: string): Route {
  const url = new URL(address, 'http://x')
  const [, w, workspace = '', t, thread = ''] = url.pathname.split('/').map(decodeURIComponent)
  const number = (name: string) => (/^\d+$/.test(url.searchParams.get(name) ?? '') ? Number(url.searchParams.get(name)) : null)
  const panel = url.searchParams.get('panel') ?? ''
  return {
    workspace: w === 'w' ? workspace : '',
    thread: w === 'w' && t === 't' ? thread : '',
    panel: PANELS.includes(panel) ? (panel as Panel) : '',
    turn: number('turn'),
    record: number('record'),
  }
}

export function format(route: Route): string {
  const path = route.workspace ? `/w/${encodeURIComponent(route.workspace)}` + (route.thread ? `/t/${encodeURIComponent(route.thread)}` : '') : '/'
  const more = new URLSearchParams()
  if (route.panel) more.set('panel', route.panel)
  if (route.turn !== null) more.set('turn', String(route.turn))
  if (route.record !== null) more.set('record', String(route.record))
  const query = more.toString()
  return path + (query ? `?${query}` : '')
}

const listeners = new Set<() => void>()
let current = typeof location === 'undefined' ? parse('/') : parse(location.href)

function changed(): void {
  current = parse(location.href)
  for (const listener of listeners) listener()
}

export function go(change: Partial<Route>, replace = false): void {
  const address = format({ ...current, ...change })
  if (replace) history.replaceState(null, '', address)
  else history.pushState(null, '', address)
  changed()
}

export function useRoute(): Route {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      if (listeners.size === 1) addEventListener('popstate', changed)
      return () => {
        listeners.delete(listener)
        if (listeners.size === 0) removeEventListener('popstate', changed)
      }
    },
    () => current,
  )
}
