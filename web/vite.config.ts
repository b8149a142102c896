import tailwind from '@tailwindcss/vite'
import react from '@vitejs/plugin-react'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'

/** Every browser that runs this page reads WOFF2: the other two forms of KaTeX's fonts are left out. */
function woff2Only(): Plugin {
  return {
    name: 'woff2-only',
    enforce: 'pre',
    transform(code, id) {
      if (!id.includes('katex') || !id.endsWith('.css')) return null
      return code.replace(/,\s*url\([^)]+\.(?:woff|ttf)\)\s*format\(["'](?:woff|truetype)["']\)/g, '')
    },
  }
}

// File names carry no hash, so that a rebuild changes only what changed; the server sends an ETag.
// Vendor code stands apart from ours, since it changes seldom.
export default defineConfig({
  plugins: [react(), tailwind(), woff2Only()],
  base: '/',
  server: { proxy: { '/api': 'http://127.0.0.1:8321' } },
  build: {
    outDir: '../src/tenuto/server/web',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 800,
    rolldownOptions: {
      output: {
        entryFileNames: 'assets/[name].js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/[name].[ext]',
        advancedChunks: {
          groups: [
            { name: 'vendor', test: /node_modules[\\/](react|react-dom|scheduler|@tanstack|@radix-ui[\\/](?!react-(toast|switch))[^\\/]+|@floating-ui|virtua|react-remove-scroll|aria-hidden|lucide-react)[\\/]/ },
          ],
        },
      },
    },
  },
  test: { include: ['test/**/*.test.ts'], environment: 'node' },
})
