/** Language and theme of this browser. Both catalogues have the same type, so that none can lack a sentence. */
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from 'react'
import type { en } from './en'

export type Text = typeof en
export type Language = 'en' | 'zh'
export type Theme = 'light' | 'dark' | 'system'

/** A browser loads the language it shows. */
const CATALOGUES: Record<Language, () => Promise<Text>> = {
  en: async () => (await import('./en')).en,
  zh: async () => (await import('./zh')).zh,
}

interface Look {
  language: Language
  setLanguage: (language: Language) => void
  theme: Theme
  setTheme: (theme: Theme) => void
  text: Text
}

const Context = createContext<Look | null>(null)

function stored<T extends string>(key: string, allowed: readonly T[], otherwise: T): T {
  const value = localStorage.getItem(key) as T | null
  return value !== null && allowed.includes(value) ? value : otherwise
}

/** The language of this browser with its catalogue, to begin with. */
export async function firstText(): Promise<{ language: Language; text: Text }> {
  const language = stored('tenuto.language', ['en', 'zh'] as const, navigator.language.startsWith('zh') ? 'zh' : 'en')
  return { language, text: await CATALOGUES[language]() }
}

export function LookProvider({ first, children }: { first: { language: Language; text: Text }; children: ReactNode }) {
  const [{ language, text }, setSpoken] = useState(first)
  const setLanguage = useCallback((language: Language) => void CATALOGUES[language]().then((text) => setSpoken({ language, text })), [])
  const [theme, setTheme] = useState<Theme>(() => stored('tenuto.theme', ['light', 'dark', 'system'], 'system'))
  useEffect(() => {
    document.documentElement.lang = language
    localStorage.setItem('tenuto.language', language)
  }, [language])
  useEffect(() => {
    localStorage.setItem('tenuto.theme', theme)
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const apply = () => {
      document.documentElement.dataset.theme = theme === 'dark' || (theme === 'system' && dark.matches) ? 'dark' : 'light'
    }
    apply()
    dark.addEventListener('change', apply)
    return () => dark.removeEventListener('change', apply)
  }, [theme])
  const look = useMemo(() => ({ language, setLanguage, theme, setTheme, text }), [language, setLanguage, theme, text])
  return <Context.Provider value={look}>{children}</Context.Provider>
}

export function useLook(): Look {
  const look = useContext(Context)
  if (!look) throw new Error('no LookProvider')
  return look
}

export function useText(): Text {
  return useLook().text
}
