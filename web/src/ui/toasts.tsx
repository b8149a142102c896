/** Short notices at the edge of the page, each with at most one action. */
import { createContext, lazy, type ReactNode, Suspense, useCallback, useContext, useMemo, useState } from 'react'
import { ApiError } from '../api'
import { useText } from '../i18n'

const ToastList = lazy(() => import('./toastlist'))

export interface Notice {
  id: number
  text: string
  bad: boolean
  action?: { label: string; run: () => void } | undefined
}

interface Toasts {
  tell: (text: string, action?: Notice['action']) => void
  /** Says what failed and what to do next. Anything that isn't the server's word is a fault of ours and is thrown on. */
  fail: (error: unknown) => void
}

const Context = createContext<Toasts | null>(null)
let last = 0

export function ToastProvider({ children }: { children: ReactNode }) {
  const t = useText()
  const [notices, setNotices] = useState<Notice[]>([])
  const add = useCallback((notice: Omit<Notice, 'id'>) => {
    last += 1
    setNotices((known) => [...known.slice(-3), { ...notice, id: last }])
  }, [])
  const toasts = useMemo<Toasts>(
    () => ({
      tell: (text, action) => add({ text, action, bad: false }),
      fail: (error) => {
        if (!(error instanceof ApiError)) throw error
        add({ text: t.problem(error.problem), bad: true })
      },
    }),
    [add, t],
  )
  return (
    <Context.Provider value={toasts}>
      {children}
      {notices.length > 0 && (
        <Suspense fallback={null}>
          <ToastList notices={notices} onGone={(id) => setNotices((known) => known.filter((one) => one.id !== id))} />
        </Suspense>
      )}
    </Context.Provider>
  )
}

export function useToasts(): Toasts {
  const toasts = useContext(Context)
  if (!toasts) throw new Error('no ToastProvider')
  return toasts
}
