from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rmdir


class BitnetH(ConanFile):
    name = 'bitnet-h'
    description = 'Runs ternary language models (BitNet b1.58 and relatives) on a CPU'
    license = 'MIT'
    topics = ('llm', 'inference', 'bitnet', 'gguf')
    package_type = 'library'
    settings = 'os', 'arch', 'compiler', 'build_type'
    options = {'shared': [True, False], 'fPIC': [True, False]}
    default_options = {'shared': False, 'fPIC': True}
    implements = ['auto_shared_fpic']
    languages = 'C'

    def layout(self):
        cmake_layout(self)

    def source(self):
        get(self, **self.conan_data['sources'][self.version], strip_root=True)

    def generate(self):
        CMakeToolchain(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, 'LICENSE', self.source_folder, self.package_folder + '/licenses')
        CMake(self).install()
        for folder in 'cmake', 'pkgconfig':     # Conan writes its own
            rmdir(self, f'{self.package_folder}/lib/{folder}')

    def package_info(self):
        self.cpp_info.libs = ['bitnet']
        self.cpp_info.set_property('cmake_file_name', 'bitnet')
        self.cpp_info.set_property('cmake_target_name', 'bitnet::impl')
        self.cpp_info.set_property('pkg_config_name', 'bitnet')
        if self.settings.os != 'Windows':
            self.cpp_info.system_libs = ['pthread']
